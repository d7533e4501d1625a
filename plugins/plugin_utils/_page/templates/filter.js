'use strict';
// What a table is filtered by is in the page's address: words under the table's id, the text of a cell under its column's head.
const asked = () => new URLSearchParams([...new URLSearchParams(location.hash.slice(1))].filter((pair) => pair[1]));
const filtering = (table, input, narrow) => {
  const heads = [...table.tHead.rows[0].cells].map((head) => head.textContent.trim());
  const choices = [...document.querySelectorAll(`a[data-chooses="${table.id}"]`)].map((link) => [link, ...[...new URLSearchParams(link.hash.slice(1))][0]]);
  const apply = () => {
    const now = asked();
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = [...now].map(([name, value]) => [heads.indexOf(name), value]).filter((pair) => pair[0] >= 0);
    for (const [link, name, value] of choices) {
      const next = asked();
      link.setAttribute('aria-current', now.get(name) === value);
      if (now.get(name) === value) next.delete(name); else next.set(name, value);
      link.setAttribute('href', `#${next}` === '#' ? '#all' : `#${next}`);
    }
    narrow((text, cell) => words.every((word) => text.includes(word)) && wanted.every(([column, value]) => cell(column) === value));
  };
  input.addEventListener('input', () => {
    const next = asked();
    if (input.value) next.set(table.id, input.value); else next.delete(table.id);
    history.replaceState(null, '', `#${next}`);
    apply();
  });
  const follow = () => { input.value = asked().get(table.id) ?? ''; apply(); };
  addEventListener('hashchange', follow);
  if (location.hash) follow();
};
for (const button of document.querySelectorAll('button[data-words]')) {
  button.addEventListener('click', () => {
    const filter = document.getElementById(button.dataset.for);
    filter.value = button.dataset.words;
    filter.dispatchEvent(new Event('input'));
    filter.focus();
  });
}
// A table of few rows with a filter.
for (const input of document.querySelectorAll('input[data-filters]')) {
  const table = document.getElementById(input.dataset.filters);
  const count = document.getElementById(input.dataset.counts);
  const rows = [...table.tBodies[0].rows].map((row) => [row.textContent.toLowerCase(), row]);
  filtering(table, input, (fits) => {
    for (const [text, row] of rows) row.hidden = !fits(text, (column) => row.cells[column].textContent.trim());
    count.textContent = `${rows.filter((pair) => !pair[1].hidden).length} of ${rows.length}`;
  });
}
