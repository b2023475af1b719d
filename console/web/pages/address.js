// Sets the address of the websocket from that of the page: right behind any path and tunnel.
const socket = new URL("ws", location.href);
socket.protocol = location.protocol === "https:" ? "wss:" : "ws:";
document.querySelector(".textual-terminal").dataset.sessionWebsocketUrl = socket.href;
document.getElementById("again").addEventListener("click", () => location.reload());
// The reason of the close code says why the console was closed.
window.WebSocket = class extends WebSocket {
  constructor(...address) {
    super(...address);
    this.addEventListener("close", (event) => {
      const message = event.reason || "The connection to the server is lost.";
      document.getElementById("message").textContent = message;
    });
  }
};
// The terminal is created when the page has loaded; keys go to it without a click.
window.addEventListener("load", () =>
  setTimeout(() => document.querySelector(".xterm-helper-textarea").focus()),
);
