'use strict';
// Sorting: each head of a table.sort becomes a button; a field's data-v is what it is sorted by where its text is not.
const key = (row, column) => {
  const field = row.cells[column];
  const value = field.dataset.v ?? field.textContent.trim();
  const size = Number(value);
  return value !== '' && Number.isFinite(size) ? size : value;
};
// Numbers before words, so that what is unknown stays together at one end.
const order = (a, b) => {
  if (typeof a !== typeof b) return typeof a === 'number' ? -1 : 1;
  return typeof a === 'number' ? a - b : a.localeCompare(b, undefined, { numeric: true });
};
for (const table of document.querySelectorAll('table.sort')) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement('button');
    button.type = 'button';
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener('click', () => {
      const down = head.getAttribute('aria-sort') === 'ascending';
      heads.forEach((other) => other.removeAttribute('aria-sort'));
      head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
      const rows = [...table.tBodies[0].rows].map((row) => [key(row, column), row]);
      rows.sort((a, b) => (down ? order(b[0], a[0]) : order(a[0], b[0])));
      table.tBodies[0].append(...rows.map((pair) => pair[1]));
    });
  });
}
// Filtering: rows that do not hold every word typed are hidden; the count is read out.
for (const input of document.querySelectorAll('input[data-filters]')) {
  const table = document.getElementById(input.dataset.filters);
  const count = document.getElementById(input.dataset.counts);
  const rows = [...table.tBodies[0].rows].map((row) => [row.textContent.toLowerCase(), row]);
  input.addEventListener('input', () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const [text, row] of rows) {
      row.hidden = !words.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    count.textContent = `${shown} of ${rows.length}`;
  });
}
