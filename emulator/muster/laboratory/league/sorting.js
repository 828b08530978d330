// Sorts the table by a column when its heading is clicked; again: the other way round. Cells without a number stay below.
const table = document.getElementById("league");
const body = table.tBodies[0];
const headings = [...table.tHead.rows[0].cells];

function sort(column) {
  const heading = headings[column];
  const down = heading.getAttribute("aria-sort") === "ascending";
  headings.forEach((each) => each.removeAttribute("aria-sort"));
  heading.setAttribute("aria-sort", down ? "descending" : "ascending");
  const valued = [...body.rows].map((row) => [row, row.cells[column].dataset.value]);
  const words = valued.some(([, value]) => value !== "" && Number.isNaN(Number(value)));
  const compared = (a, b) => (words ? a.localeCompare(b) : Number(a) - Number(b));
  valued.sort(([, a], [, b]) => {
    if (a === "" || b === "") return (a === "") - (b === "");
    return down ? compared(b, a) : compared(a, b);
  });
  body.append(...valued.map(([row]) => row));
}

headings.forEach((heading, column) => heading.addEventListener("click", () => sort(column)));
