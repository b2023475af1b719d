// Opens the console and removes the key of the link from the address bar and the history.
// A redirect would not do: after a click on another site, it is sent without the strict cookie.
location.replace("./");
