// Parses server-sent events from a streamed body (the HTML standard, 9.2). The browser's EventSource
// can send no key and does not report why it failed.

export interface Message {
  event: string;
  data: string;
}

/** One per stream. `push` accepts decoded text, split anywhere, and returns the complete messages. */
export class SseReader {
  #rest = '';
  #event = '';
  #data: string[] = [];

  push(piece: string): Message[] {
    const found: Message[] = [];
    this.#rest += piece;
    // A CR at the very end may be half of a CRLF: it waits for the next character.
    for (let end = this.#rest.search(/\n|\r(?!$)/); end >= 0; end = this.#rest.search(/\n|\r(?!$)/)) {
      const line = this.#rest.slice(0, end);
      this.#rest = this.#rest.slice(end + (this.#rest.startsWith('\r\n', end) ? 2 : 1));
      const message = this.#line(line);
      if (message) found.push(message);
    }
    return found;
  }

  #line(line: string): Message | null {
    if (line === '') {
      const message = this.#data.length > 0 ? { event: this.#event || 'message', data: this.#data.join('\n') } : null;
      this.#event = '';
      this.#data = [];
      return message;
    }
    const colon = line.indexOf(':');
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (field === 'event') this.#event = value;
    if (field === 'data') this.#data.push(value);
    return null;
  }
}
