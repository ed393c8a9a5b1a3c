"use strict";

/* Edits of the memory in the running game: the list of them, and what was done to the quantity that colours stand for. */

/** The edits of what colours stand for, as elements. */
function editsOf(colourBy) {
  const number = colourBy.match(/^track\.(\d+)$/)?.[1];
  const own = Array.from(document.querySelectorAll("#edits article")).filter(({ dataset }) => dataset.tracks.split(" ").includes(number));
  return own.length ? [element("p", { class: "note" }, "Edited in play:"), ...own.map((edit) => edit.cloneNode(true))] : [];
}

/** A button of an edit colours the points by what it edits. */
function listenToEdits(state) {
  document.addEventListener("click", ({ target }) => {
    const { colour } = target.dataset;
    if (!colour) return;
    byId("colour-by").value = colour;
    state.set("colourBy", colour);
  });
}

function showEdit(edit) {
  edit.closest("details").open = true;
  edit.scrollIntoView({ block: "nearest" });
}
