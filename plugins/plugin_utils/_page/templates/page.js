'use strict';
// Numbers before words, so that what is unknown stays together at one end.
const order = (a, b) => {
  if (typeof a !== typeof b) return typeof a === 'number' ? -1 : 1;
  return typeof a === 'number' ? a - b : a.localeCompare(b, undefined, { numeric: true });
};
const sortable = (value) => {
  const size = Number(value);
  return value !== '' && Number.isFinite(size) ? size : String(value);
};
// Each head of a table becomes a button that sorts by its column, first upwards.
const sorting = (table, sort) => {
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
      sort(column, down);
    });
  });
};
const sorted = (rows, key, down) => {
  const keyed = rows.map((row) => [key(row), row]);
  keyed.sort((a, b) => (down ? order(b[0], a[0]) : order(a[0], b[0])));
  return keyed.map((pair) => pair[1]);
};
// The number that a text begins with, as people write it, or the text.
const numbered = (text) => {
  const number = /^[+\u2212-]?[\d\u202f]+(\.\d+)?(e[+-]?\d+)?/.exec(text);
  return number ? Number(number[0].replaceAll('\u202f', '').replace('\u2212', '-')) : text;
};
// A table whose rows are all there: a field's data-v is what it is sorted by where its text, or the number in it, is not.
for (const table of document.querySelectorAll('table.sort')) {
  const first = Number(/\ba(\d)/.exec(table.className)?.[1] ?? 1e9);
  const said = (cell) => {
    const text = cell.textContent.trim();
    const counted = cell.className ? cell.classList.contains('n') : cell.cellIndex + 1 >= first;
    return cell.dataset.v ?? (counted ? numbered(text) : text);
  };
  const key = (column) => (row) => sortable(said(row.cells[column]));
  sorting(table, (column, down) => table.tBodies[0].append(...sorted([...table.tBodies[0].rows], key(column), down)));
}
// A table of many rows: they are data (a cell is a text, or a text, what it is sorted by, its class and its address), and as many are made as are looked at.
// It comes by columns, behind the number of rows: the first of consecutive numbers, or the different cells of a column, which of them each row has (a digit each, or a list), and what all of its texts begin with.
const cellsOf = (column) => {
  if (!Array.isArray(column)) return (row) => column + row;
  const [cells, places, shared] = column;
  const whole = shared ? cells.map((cell) => shared + cell) : cells;
  if (!places) return (row) => whole[whole.length > 1 ? row : 0];
  return (row) => whole[typeof places === 'string' ? parseInt(places[row], 36) : places[row]];
};
const tableOf = ([count, ...columns]) => {
  const cells = columns.map(cellsOf);
  return Array.from({ length: count }, (_row, row) => cells.map((cell) => cell(row)));
};
const STEP = 200;
const digits = new Intl.NumberFormat('en', { maximumSignificantDigits: 6 });
const written = (value) => (typeof value === 'number' ? digits.format(value).replaceAll(',', '\u202f') : String(value));
const shown = (cell) => written(Array.isArray(cell) ? cell[0] : cell);
const field = (cell, head, first) => {
  const made = document.createElement(first ? 'th' : 'td');
  if (first) made.scope = 'row';
  if (head.classList.contains('n')) made.className = 'n';
  const [text, , kind, address] = Array.isArray(cell) ? cell : [cell];
  const holder = address || kind ? made.appendChild(document.createElement(address ? 'a' : 'span')) : made;
  if (address) holder.setAttribute('href', address);
  if (kind) holder.className = `verdict ${kind}`;
  holder.textContent = written(text);
  return made;
};
for (const source of document.querySelectorAll('script[data-rows]')) {
  const table = document.getElementById(source.dataset.rows);
  const all = tableOf(JSON.parse(source.textContent));
  const heads = table.tHead.rows[0].cells;
  const count = document.getElementById(`count-${table.id}`);
  const more = document.getElementById(`more-${table.id}`);
  const filter = document.getElementById(`filter-${table.id}`);
  let texts = null;
  let rows = all;
  let made = table.tBodies[0].rows.length;
  const grow = (to) => {
    const added = rows.slice(made, to).map((row) => {
      const line = document.createElement('tr');
      line.append(...row.map((cell, place) => field(cell, heads[place], place === 0)));
      return line;
    });
    table.tBodies[0].append(...added);
    made += added.length;
    count.textContent = `${rows.length} of ${all.length}`;
    more.hidden = made >= rows.length;
    more.textContent = `Show more, ${rows.length - made} are left`;
  };
  const show = () => { table.tBodies[0].replaceChildren(); made = 0; grow(STEP); };
  sorting(table, (column, down) => {
    const key = (row) => sortable(Array.isArray(row[column]) ? row[column][1] : row[column]);
    rows = sorted(rows, key, down);
    show();
  });
  more.addEventListener('click', () => grow(made + STEP));
  // Rows that do not hold every word typed are left out; the count is read out.
  if (filter) filtering(table, filter, (fits) => {
    texts ??= new Map(all.map((row) => [row, row.map(shown).join('\n').toLowerCase()]));
    // A star after a text is a note.
    rows = all.filter((row) => fits(texts.get(row), (column) => shown(row[column]).replace(/ \*$/, '')));
    table.tHead.querySelectorAll('[aria-sort]').forEach((head) => head.removeAttribute('aria-sort'));
    show();
  });
  // What is folded up is made when it is unfolded.
  const fold = table.closest('details:not([open])');
  if (fold) fold.addEventListener('toggle', () => made || show(), { once: true }); else grow(Math.max(made, STEP));
}
// What may be wider than the screen is reached by keyboard, under its heading and its caption.
for (const wide of document.querySelectorAll('.wide:not([aria-label])')) {
  const names = [wide.closest('.panel')?.querySelector('h3'), wide.querySelector('caption')];
  wide.tabIndex = 0;
  wide.setAttribute('role', 'region');
  wide.setAttribute('aria-label', names.map((name) => name?.textContent).filter(Boolean).join(': '));
}
// Paper has nothing to unfold: what is not long is opened for it, and folded again.
const unfolded = [];
addEventListener('beforeprint', () => {
  for (const fold of document.querySelectorAll('details:not([open], .long)')) {
    fold.open = true;
    unfolded.push(fold);
  }
});
addEventListener('afterprint', () => { for (const fold of unfolded.splice(0)) fold.open = false; });
