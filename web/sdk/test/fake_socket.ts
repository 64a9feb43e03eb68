// A WebSocket that does what a test says.

export class FakeSocket {
  static readonly OPEN = 1;
  static all: FakeSocket[] = [];
  readyState = 0;
  bufferedAmount = 0;
  binaryType = '';
  sent: (string | ArrayBuffer | Uint8Array)[] = [];
  onopen: () => void = () => {};
  onmessage: (message: { data: unknown }) => void = () => {};
  onclose: (close: { code: number }) => void = () => {};

  constructor(
    readonly url: string,
    readonly protocols: string[],
  ) {
    FakeSocket.all.push(this);
  }

  open(): void {
    this.readyState = FakeSocket.OPEN;
    this.onopen();
  }

  say(event: object): void {
    this.onmessage({ data: JSON.stringify(event) });
  }

  break(code = 1006): void {
    this.readyState = 3;
    this.onclose({ code });
  }

  /** As in a browser: what is sent leaves the buffer in a later task, if the network takes it. */
  send(data: string | Uint8Array): void {
    this.sent.push(data);
    this.bufferedAmount += data.length;
  }

  drain(): void {
    this.bufferedAmount = 0;
  }

  closedWith: number | undefined;

  close(code?: number): void {
    this.readyState = 2;
    this.closedWith = code;
  }
}
