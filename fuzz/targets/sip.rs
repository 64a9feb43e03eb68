//! SIP messages and descriptions: what an endpoint does with a stream of messages of one peer, and offers that it
//! answers.
//!
//! The first byte is the seconds between two messages; an empty line and `%` separate them.
#![no_main]
#![allow(clippy::disallowed_methods)]

use antiphon_sip::sdp::{self, Codec, Local, MasterKey, Protection};
use antiphon_sip::{Config, Endpoint, Event, MAX_CALLS, Message, Output, Peer, Transport, Trunk, rtcp, stream_message};
use libfuzzer_sys::fuzz_target;
use std::time::{Duration, Instant};

fuzz_target!(|data: &[u8]| {
    let Some((&seconds, rest)) = data.split_first() else { return };
    let _ = stream_message(rest);
    let _ = Message::parse(rest);
    let _ = rtcp::read(rest, 1);
    let key = MasterKey::new([7; MasterKey::BYTES]);
    for protection in [Protection::Off, Protection::Optional(&key), Protection::Required(&key)] {
        let address = "192.0.2.1:20000".parse().unwrap();
        let local = Local { address, codecs: &Codec::ALL, session: 1, version: 1, protection };
        if let Ok((answer, agreed)) = sdp::answer(rest, local) {
            assert!(agreed.srtp.is_some() || !matches!(protection, Protection::Required(_)), "plain RTP");
            // What was agreed on is read again alike; a key, where its number is one of ours.
            let codecs = &[agreed.codec];
            if let Ok(read) = sdp::read_answer(answer.as_bytes(), Local { codecs, ..local }) {
                assert_eq!(read.payload_type, agreed.payload_type);
            }
        }
    }
    let config = Config {
        advertised: "192.0.2.1:5060".parse().unwrap(),
        tls_port: 5_061,
        agent: "fuzz".into(),
        trunks: vec![Trunk { allowed: vec!["192.0.2.0/24".parse().unwrap()], ..Trunk::default() }],
        secret: [1; 32],
    };
    let start = Instant::now();
    let mut now = start;
    let mut endpoint = Endpoint::new(config, now);
    let known = Peer { transport: Transport::Udp, address: "192.0.2.9:5060".parse().unwrap() };
    let stranger = Peer { transport: Transport::Udp, address: "203.0.113.9:5060".parse().unwrap() };
    for bytes in rest.split(|byte| *byte == b'%') {
        endpoint.receive(now, stranger, bytes);
        while let Some(output) = endpoint.poll() {
            if let Output::Send { to, bytes: sent } = output {
                assert!(sent.len() <= bytes.len() && to.address.ip() == stranger.address.ip(), "an amplifier");
            }
        }
        assert_eq!(endpoint.n_calls(), 0, "a stranger leaves nothing");
    }
    for bytes in rest.split(|byte| *byte == b'%') {
        endpoint.receive(now, known, bytes);
        now += Duration::from_secs(u64::from(seconds));
        endpoint.expire(now);
        take(&mut endpoint, now);
        assert!(endpoint.n_calls() <= MAX_CALLS);
    }
    endpoint.shut_down(now);
    for _ in 0..8 {
        now += Duration::from_secs(100);
        endpoint.expire(now);
        take(&mut endpoint, now);
    }
    assert_eq!(endpoint.n_calls(), 0, "a call is left");
});

fn take(endpoint: &mut Endpoint, now: Instant) {
    for _ in 0..1_000 {
        match endpoint.poll() {
            Some(Output::Event(Event::Incoming(incoming))) => endpoint.accept(now, incoming.call, "v=0\r\n"),
            Some(Output::Event(Event::Offer { call, .. })) => endpoint.answer_offer(now, call, Ok("v=0\r\n")),
            Some(Output::Send { bytes, .. }) => assert!(Message::parse(&bytes).is_ok(), "we send messages"),
            Some(_) => {}
            None => return,
        }
    }
    panic!("an endpoint that never ends to want something");
}
