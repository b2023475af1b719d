// Sets the address of the websocket from that of the page: right behind any path and tunnel.
const socket = new URL("ws", location.href);
socket.protocol = location.protocol === "https:" ? "wss:" : "ws:";
document.querySelector(".textual-terminal").dataset.sessionWebsocketUrl = socket.href;
document.getElementById("again").addEventListener("click", () => location.reload());
// The terminal is created when the page has loaded; keys go to it without a click.
window.addEventListener("load", () =>
  setTimeout(() => document.querySelector(".xterm-helper-textarea").focus()),
);
