// Opens the console and removes the key of the link from the address bar and the history.
// A redirect would not do: after a click on another site, it is sent without the strict cookie.
// When this browser has had the link of somebody else, the page says so and waits for a click.
if (document.getElementById("message").textContent) history.replaceState(null, "", "./");
else location.replace("./");
