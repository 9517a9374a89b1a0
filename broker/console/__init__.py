"""
The console: pages for people, at /console, over the same functions as the API.

Server-rendered, and whole without JavaScript: forms post, links lead to pages. htmx only fetches a
page again and puts a part of it in place of what is shown; console.js is comfort.

    app.py       every request: access, routing, tokens, headers, errors
    session.py   the cookie of who has signed in, and the tokens of forms
    visit.py     one request as a page sees it: who asks, what was sent, the ways to answer
    page.py      a page: a path, the scope it needs, what shows it, what acts
    shown.py     templates, and how moments, counts and durations are written
    chart.py     columns and lines as SVG, drawn here
    assets.py    style, scripts and symbols, under names that carry their hash
    pages/       one module a page, each with a template of its name in templates/

How to make a page NAME:

1.  broker/console/pages/NAME.py has functions `async def show(visit: Visit) -> Response`, which
    end with `visit.render("NAME.html", data)`; data is a frozen dataclass of what the page shows,
    and `data` in the template. It is read by functions of broker/api and wheel_timer/store; where a
    handler of the API holds both the reading and the answer, take the reading out of it.
2.  PAGES at the end of the module lists them: Page(path, scope, show, ...), one with `menu` for
    what stands in the menu. broker/console/pages/__init__.py names the module.
3.  templates/NAME.html begins with {% extends "base.html" %} and fills the block `main`.
    templates/parts.html has the parts: badges, times, fields, tables' ends, charts, confirmations.
    No style= and no script: the Content-Security-Policy forbids them.
4.  What changes something is a Page with `act` too, at a path of its own. Its `show` (and `review`,
    where what is asked for is too much, or too secret, for a query) ends with visit.confirm(...):
    what will happen, to what, to how many. Only a form of that page carries the token with which
    `act` runs, so nothing is done that was not confirmed. `act` ends with visit.done(path, text).
5.  To keep a part fresh, give it an id and the attributes of parts.html's `fresh`.

What a key may not see is 404 here, too: judge with visit.actor.check_sees(biz_type). A scope that
it lacks is 403 by Page.scope; hide what leads there with visit.may(...). Errors of ours that a
handler raises become a page that says so.
"""
