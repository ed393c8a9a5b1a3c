"""What pages of all questions share.

`pages.py` puts a page together: `layout.html` around all, styles and scripts of the kit before the page's own, tables
packed. `summary.html` is the page of a run that is a text. In `kit/`:

| file | what it holds |
|---|---|
| `base.css`, `dark.css` | colours, letters, what can be pressed or filled in, bars, maps; every page has it |
| `window.css`, `document.css` | what a page is: a window full of things to use, or a text to read |
| `macros.html` | facts and tables in the page, buttons that move time and zoom, figures |
| `page.js` | elements, the state of a page and what shows it, how it starts or says why not, numbers in words, bars |
| `unpacking.js` | tables, as `pages.py` packs them |
| `canvas.js` | sharp canvases, what is under the pointer, lines over ticks, rings |
| `glyphs.js` | marks of agents, NPCs, events and attacks, and legends of them |
| `view.js` | what an agent saw, maps over it, and its legend |
| `playback.js` | time that plays, and the buttons, slider and keys that move it |
"""
