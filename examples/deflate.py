#!/usr/bin/env python3
"""Measures what permessage-deflate (RFC 7692) would save on the Realtime protocol's audio events, and its processor time.

    examples/deflate.py FOLDER      # WAV files: PCM16, mono, 16 kHz. Needs Python alone.

Compresses one message for each 20 ms by zlib, with and without context takeover. Opus is represented by random packets
of 60 bytes (24 kbit/s): base64 and JSON are what can be compressed of it. Connects to nothing.
"""

import array
import base64
import json
import pathlib
import random
import sys
import time
import wave
import zlib

IDS = {"response_id": "resp_" + "a1B2c3D4e5" * 2, "item_id": "item_" + "f6G7h8I9j0" * 2}


def samples_of(path):
    with wave.open(str(path)) as sound:
        if (sound.getframerate(), sound.getnchannels(), sound.getsampwidth()) != (16_000, 1, 2):
            sys.exit(f"{path}: PCM16, mono, 16 kHz is needed")
        samples = array.array("h", sound.readframes(sound.getnframes()))
    if sys.byteorder == "big":
        samples.byteswap()
    return samples


def at_24_khz(samples):
    """By linear interpolation: three samples for two."""
    raised = array.array("h")
    for at in range(0, len(samples) - 2, 2):
        first, second, third = samples[at:at + 3]
        raised.extend((first, (first + 2 * second) // 3, (2 * second + third) // 3))
    return raised.tobytes()


def mu_law_8_khz(samples):
    coded = bytearray()
    for at in range(0, len(samples) - 1, 2):
        value = (samples[at] + samples[at + 1]) // 2
        sign = 0x80 if value < 0 else 0
        magnitude = min(abs(value), 32_635) + 132
        exponent = magnitude.bit_length() - 8
        coded.append(~(sign | exponent << 4 | magnitude >> (exponent + 3) & 15) & 0xFF)
    return bytes(coded)


def message(payload, number):
    event = {"type": "response.output_audio.delta", "event_id": f"event_{number:021}", **IDS,
             "output_index": 0, "content_index": 0, "delta": base64.b64encode(payload).decode()}
    return json.dumps(event, separators=(",", ":")).encode()


def messages(payloads, size):
    pieces = [payload[at:at + size] for payload in payloads for at in range(0, len(payload), size)]
    return [message(piece, number) for number, piece in enumerate(pieces)]


def measure(name, sent, seconds, level, takeover):
    began = time.process_time()
    deflater = zlib.compressobj(level, zlib.DEFLATED, -15)
    packed = []
    for text in sent:
        if not takeover:
            deflater = zlib.compressobj(level, zlib.DEFLATED, -15)
        packed.append(deflater.compress(text) + deflater.flush(zlib.Z_SYNC_FLUSH))
    deflated = time.process_time()
    inflater = zlib.decompressobj(-15)
    for text, piece in zip(sent, packed):
        if not takeover:
            inflater = zlib.decompressobj(-15)
        assert inflater.decompress(piece) == text
    inflated = time.process_time()
    plain_kbit_s = sum(map(len, sent)) * 8 / seconds / 1e3
    # The four last bytes of a flush are not sent.
    packed_kbit_s = sum(len(piece) - 4 for piece in packed) * 8 / seconds / 1e3
    print(f"{name:8} level {level} {'kept' if takeover else 'new':4} context: {plain_kbit_s:5.0f} -> "
          f"{packed_kbit_s:5.0f} kbit/s ({packed_kbit_s / plain_kbit_s:.2f}), a second of sound: deflate "
          f"{(deflated - began) / seconds * 1e3:.2f} ms, inflate {(inflated - deflated) / seconds * 1e3:.2f} ms")


def main():
    sounds = [samples_of(path) for path in sorted(pathlib.Path(sys.argv[1]).glob("*.wav"))]
    if not sounds:
        sys.exit(f"{sys.argv[1]}: no WAV files")
    seconds = sum(map(len, sounds)) / 16_000
    dice = random.Random(1)
    packets = [dice.randbytes(60) for _ in range(int(seconds * 50))]
    kinds = {
        "PCM16": messages(map(at_24_khz, sounds), 960),
        "G.711": messages(map(mu_law_8_khz, sounds), 160),
        "Opus": messages(packets, 60),
    }
    print(f"zlib {zlib.ZLIB_RUNTIME_VERSION}, {len(sounds)} files, {seconds:.0f} s")
    for level in (1, 6):
        for takeover in (True, False):
            for name, sent in kinds.items():
                measure(name, sent, seconds, level, takeover)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main()
