// A page opened from disk may start no worker of another file, only of a text of its own (blob:). There the worker of the search runs in a hidden frame, under the same interface.
if (location.protocol === "file:") {
  const Native = window.Worker;
  window.Worker = class extends EventTarget {
    constructor(url) {
      if (String(url).startsWith("blob:")) return new Native(url);
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = `<script>postMessage = (data) => answer(data)</script><script src="${url}"></script>`;
      this.ready = new Promise((resolve) => {
        frame.addEventListener("load", () => {
          frame.contentWindow.answer = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
          resolve(frame.contentWindow);
        });
      });
      document.body.append(frame);
    }

    postMessage(data) {
      this.ready.then((worker) => worker.dispatchEvent(new worker.MessageEvent("message", { data })));
    }
  };
}
