// The binary frame of the extension socket: a 16-byte header, the item id, and one audio payload.
// The session encodes and decodes each frame here. The payload is never inspected.

/** Kind of a frame; the numbers are those on the wire. */
export const FrameKind = { Microphone: 1, Reply: 2 } as const;
export type FrameKind = (typeof FrameKind)[keyof typeof FrameKind];

/** Sampling rate of all offsets on the socket, whatever the codec. */
export const WIRE_RATE_HZ = 24_000;
/** Samples of one 20 ms frame at the wire rate. */
export const FRAME_SAMPLES = 480;

const HEADER_BYTES = 16;
const MAX_ITEM_ID_BYTES = 255;

export interface Frame {
  kind: FrameKind;
  /** Sequence number per direction, from 0, wrapping at 2^32. */
  sequence: number;
  /** Position of the payload's first sample, in 24 kHz samples. */
  sampleOffset: number;
  /** Id of the response item; empty for the microphone. */
  itemId: string;
  /** One Opus packet, or PCM16 little-endian mono at 24 kHz. */
  payload: Uint8Array;
}

/** A frame that cannot be decoded; the message states why. */
export class FrameError extends Error {}

export function encodeFrame(frame: Frame): Uint8Array<ArrayBuffer> {
  const id = new TextEncoder().encode(frame.itemId);
  if (id.length > MAX_ITEM_ID_BYTES) throw new FrameError(`item id of ${id.length} bytes`);
  const bytes = new Uint8Array(HEADER_BYTES + id.length + frame.payload.length);
  const view = new DataView(bytes.buffer);
  view.setUint8(0, frame.kind);
  view.setUint8(1, id.length);
  view.setUint16(2, 0, true);
  view.setUint32(4, frame.sequence >>> 0, true);
  view.setBigUint64(8, BigInt(frame.sampleOffset), true);
  bytes.set(id, HEADER_BYTES);
  bytes.set(frame.payload, HEADER_BYTES + id.length);
  return bytes;
}

/** Decodes one frame; the payload is a view into `buffer`, not a copy. */
export function decodeFrame(buffer: ArrayBuffer): Frame {
  if (buffer.byteLength < HEADER_BYTES) throw new FrameError(`${buffer.byteLength} bytes are no frame`);
  const view = new DataView(buffer);
  const kind = view.getUint8(0);
  if (kind !== FrameKind.Microphone && kind !== FrameKind.Reply) throw new FrameError(`unknown kind ${kind}`);
  const idBytes = view.getUint8(1);
  const start = HEADER_BYTES + idBytes;
  if (buffer.byteLength < start) throw new FrameError('item id cut off');
  const offset = view.getBigUint64(8, true);
  if (offset > BigInt(Number.MAX_SAFE_INTEGER)) throw new FrameError(`sample offset ${offset} too large`);
  return {
    kind,
    sequence: view.getUint32(4, true),
    sampleOffset: Number(offset),
    itemId: new TextDecoder().decode(new Uint8Array(buffer, HEADER_BYTES, idBytes)),
    payload: new Uint8Array(buffer, start),
  };
}
