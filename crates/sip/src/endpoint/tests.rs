//! Endpoints with a peer on a clock of the test: what is sent for what arrives, and when.

use super::*;
use crate::digest::Credentials;

const SDP: &str = "v=0\r\no=- 1 1 IN IP4 192.0.2.9\r\ns=-\r\nc=IN IP4 192.0.2.9\r\nt=0 0\r\nm=audio 4000 RTP/AVP 0\r\n";

/// An endpoint, the time, and what went out.
struct Rig {
    endpoint: Endpoint,
    now: Instant,
    sent: VecDeque<(Peer, Message)>,
    events: VecDeque<Event>,
    resolves: usize,
    peer: Peer,
}

fn peer(address: &str, transport: Transport) -> Peer {
    Peer { transport, address: address.parse().unwrap() }
}

fn trunk_of(networks: &[&str], password: Option<&str>) -> Trunk {
    let credentials = password.map(|password| Credentials { username: "ann".into(), password: password.into() });
    let allowed = networks.iter().map(|network| network.parse().unwrap()).collect();
    Trunk { allowed, credentials, registration: None }
}

impl Rig {
    #[allow(clippy::disallowed_methods)]
    fn new(trunks: Vec<Trunk>) -> Self {
        let advertised = "192.0.2.1:5060".parse().unwrap();
        let config = Config { advertised, tls_port: 5_061, agent: "antiphon".into(), trunks, secret: [7; 32] };
        let now = Instant::now();
        let mut rig = Self {
            endpoint: Endpoint::new(config, now),
            now,
            sent: VecDeque::new(),
            events: VecDeque::new(),
            resolves: 0,
            peer: peer("192.0.2.9:5062", Transport::Udp),
        };
        rig.drain();
        rig
    }

    fn open() -> Self {
        Self::new(vec![trunk_of(&["192.0.2.0/24"], None)])
    }

    fn drain(&mut self) {
        while let Some(output) = self.endpoint.poll() {
            match output {
                Output::Send { to, bytes } if &bytes[..] != b"\r\n\r\n" => {
                    self.sent.push_back((to, Message::parse(&bytes).expect("we send messages")));
                }
                Output::Send { .. } => {}
                Output::Resolve { .. } => self.resolves += 1,
                Output::Event(event) => self.events.push_back(event),
            }
        }
    }

    fn receive(&mut self, text: &str) {
        self.endpoint.receive(self.now, self.peer, text.as_bytes());
        self.drain();
    }

    /// Lets time pass, as the embedder does it: deadline by deadline.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.endpoint.next_deadline().filter(|at| *at <= end) {
            self.now = at.max(self.now);
            self.endpoint.expire(self.now);
            self.drain();
        }
        self.now = end;
        self.endpoint.expire(end);
        self.drain();
    }

    fn statuses(&mut self) -> Vec<u16> {
        self.sent.drain(..).filter_map(|(_, message)| message.status()).collect()
    }

    fn last(&mut self) -> Message {
        let last = self.sent.pop_back().expect("something was sent").1;
        self.sent.clear();
        last
    }

    fn incoming(&mut self) -> IncomingCall {
        match self.events.pop_front() {
            Some(Event::Incoming(call)) => *call,
            other => panic!("no call but {other:?}"),
        }
    }

    /// A call that was answered and acknowledged; gives it and our tag.
    fn connected(&mut self, extra: &str) -> (CallId, String) {
        self.receive(&request("INVITE", 1, "", extra, SDP));
        let call = self.incoming().call;
        self.endpoint.accept(self.now, call, SDP);
        self.drain();
        let answer = self.last();
        assert_eq!(answer.status(), Some(200));
        let tag = answer.to().unwrap().tag().unwrap().to_owned();
        self.receive(&request("ACK", 1, &tag, "", ""));
        assert_eq!(self.events.pop_front(), Some(Event::Connected { call, answer: None }));
        (call, tag)
    }
}

/// A request of the peer. The number is that of `CSeq` and in the branch.
fn request(method: &str, number: u32, tag: &str, extra: &str, body: &str) -> String {
    let to_tag = if tag.is_empty() { String::new() } else { format!(";tag={tag}") };
    let kind = if body.is_empty() { "" } else { "Content-Type: application/sdp\r\n" };
    // A CANCEL has the branch of its INVITE, and so has the ACK of an error.
    let branch = if method == "CANCEL" || method == "ACK" { "INVITE" } else { method };
    format!(
        "{method} sip:100@192.0.2.1 SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.9:5062;branch=z9hG4bK{number}{branch};rport\r\n\
         Max-Forwards: 70\r\nFrom: \"Ann\" <sip:+15550123@192.0.2.9>;tag=far\r\nTo: <sip:100@192.0.2.1>{to_tag}\r\n\
         Call-ID: one@192.0.2.9\r\nCSeq: {number} {method}\r\nContact: <sip:ann@10.0.0.9:5062>\r\n{extra}{kind}\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[test]
fn a_call_is_answered_acknowledged_and_ended_by_the_peer() {
    let mut rig = Rig::open();
    rig.receive(&request("INVITE", 1, "", "", SDP));
    let incoming = rig.incoming();
    assert_eq!((incoming.to.as_deref(), incoming.from.as_deref()), (Some("100"), Some("+15550123")));
    assert_eq!(incoming.offer.as_deref(), Some(SDP.as_bytes()));
    rig.endpoint.ring(rig.now, incoming.call);
    rig.endpoint.accept(rig.now, incoming.call, SDP);
    rig.drain();
    let answer = rig.sent.back().unwrap().1.clone();
    assert_eq!(rig.statuses(), [100, 180, 200]);
    assert_eq!(answer.get("contact"), Some("<sip:192.0.2.1:5060>"));
    let tag = answer.to().unwrap().tag().unwrap().to_owned();
    rig.receive(&request("ACK", 1, &tag, "", ""));
    rig.pass(Duration::from_secs(60));
    assert_eq!(rig.statuses(), [0u16; 0], "nothing is sent again after the ACK");
    rig.receive(&request("BYE", 2, &tag, "", ""));
    rig.receive(&request("BYE", 2, &tag, "", ""));
    rig.receive(&request("BYE", 3, &tag, "", ""));
    assert_eq!(rig.statuses(), [200, 200, 481], "repeated, it is answered alike; said twice, there is no call");
    let events: Vec<_> = rig.events.drain(..).collect();
    let ended = Event::Ended { call: incoming.call, cause: EndCause::Bye };
    assert_eq!(events, [Event::Connected { call: incoming.call, answer: None }, ended]);
    rig.pass(Duration::from_secs(40));
    assert_eq!(rig.endpoint.n_calls(), 0);
    assert_eq!(rig.endpoint.next_deadline(), None, "nothing is left");
    assert!(rig.endpoint.by_dialog.is_empty() && rig.endpoint.by_invite.is_empty() && rig.endpoint.answered.is_empty());
}

#[test]
fn an_answer_is_sent_again_until_it_is_acknowledged_and_the_call_ends_without() {
    let mut rig = Rig::open();
    rig.receive(&request("INVITE", 1, "", "", SDP));
    let call = rig.incoming().call;
    rig.endpoint.accept(rig.now, call, SDP);
    rig.drain();
    rig.sent.clear();
    rig.pass(Duration::from_millis(7_600));
    assert_eq!(rig.statuses(), [200; 4], "after 0.5, 1.5, 3.5 and 7.5 s");
    rig.receive(&request("INVITE", 1, "", "", SDP));
    assert_eq!(rig.statuses(), [200], "a repeated INVITE gets it, too");
    rig.pass(Duration::from_secs(25));
    assert_eq!(rig.events.pop_back(), Some(Event::Ended { call, cause: EndCause::NoAck }));
    assert_eq!(rig.last().method(), Some(Method::Bye));
    rig.pass(Duration::from_secs(70));
    assert_eq!(rig.endpoint.n_calls(), 0);
}

#[test]
fn a_cancel_before_the_answer_ends_the_call_and_after_it_does_not() {
    let mut rig = Rig::open();
    rig.receive(&request("INVITE", 1, "", "", SDP));
    let call = rig.incoming().call;
    rig.receive(&request("CANCEL", 1, "", "", ""));
    let tags: Vec<_> = rig.sent.iter().skip(1).map(|(_, message)| message.get("to").map(str::to_owned)).collect();
    assert_eq!(tags[0], tags[1], "both are of one dialog");
    assert_eq!(rig.statuses(), [100, 200, 487]);
    assert_eq!(rig.events.pop_front(), Some(Event::Ended { call, cause: EndCause::Cancelled }));
    rig.pass(Duration::from_millis(600));
    assert_eq!(rig.statuses(), [487]);
    rig.receive(&request("ACK", 1, "x", "", ""));
    rig.pass(Duration::from_secs(40));
    assert_eq!((rig.statuses().len(), rig.endpoint.n_calls()), (0, 0));

    let mut rig = Rig::open();
    rig.connected("");
    rig.receive(&request("CANCEL", 1, "", "", ""));
    assert_eq!((rig.statuses(), rig.events.len()), (vec![200], 0), "it comes too late");
    rig.receive(&request("CANCEL", 9, "", "", ""));
    assert_eq!(rig.statuses(), [481]);
}

#[test]
fn our_bye_goes_to_where_the_call_came_from_and_waits_for_the_acknowledgement() {
    let mut rig = Rig::open();
    let (call, _) = rig.connected("Record-Route: <sip:proxy.example;lr>\r\n");
    rig.endpoint.hang_up(rig.now, call);
    rig.drain();
    let to = rig.sent.back().unwrap().0;
    let bye = rig.last();
    assert_eq!(to, rig.peer, "not to the address of the contact");
    let StartLine::Request { method, uri } = &bye.start else { panic!("a request") };
    assert_eq!((method, uri.as_str()), (&Method::Bye, "sip:ann@10.0.0.9:5062"));
    assert_eq!(bye.get("route"), Some("<sip:proxy.example;lr>"));
    rig.pass(Duration::from_millis(600));
    assert_eq!(rig.last(), bye, "it is sent again");
    rig.receive(std::str::from_utf8(&bye.answer(200, "OK", None).write()).unwrap());
    assert_eq!((rig.endpoint.n_calls(), rig.events.len()), (0, 0));

    let mut rig = Rig::open();
    rig.receive(&request("INVITE", 1, "", "", SDP));
    let call = rig.incoming().call;
    rig.endpoint.accept(rig.now, call, SDP);
    rig.endpoint.hang_up(rig.now, call);
    rig.drain();
    let answer = rig.last();
    assert_eq!(answer.status(), Some(200), "no BYE yet");
    rig.receive(&request("ACK", 1, answer.to().unwrap().tag().unwrap(), "", ""));
    assert_eq!((rig.last().method(), rig.events.len()), (Some(Method::Bye), 0));
}

#[test]
fn our_requests_follow_a_peer_whose_port_changes() {
    let mut rig = Rig::open();
    let (call, tag) = rig.connected("");
    rig.peer = peer("192.0.2.9:61000", Transport::Udp);
    rig.receive(&request("INFO", 2, &tag, "", ""));
    rig.receive(&request("INFO", 3, &tag, "", ""));
    assert_eq!(rig.events.drain(..).collect::<Vec<_>>(), [Event::Moved { call, peer: rig.peer }]);
    rig.sent.clear();
    rig.endpoint.hang_up(rig.now, call);
    rig.drain();
    assert_eq!(rig.sent.back().unwrap().0, rig.peer, "a NAT has moved it");
}

#[test]
fn a_refusal_is_sent_until_it_is_acknowledged() {
    let mut rig = Rig::open();
    rig.receive(&request("INVITE", 1, "", "", SDP));
    let call = rig.incoming().call;
    rig.endpoint.refuse(rig.now, call, 503, "Service Unavailable", Some(Duration::from_secs(7)));
    rig.drain();
    assert_eq!(rig.sent.back().unwrap().1.get("retry-after"), Some("7"));
    rig.pass(Duration::from_secs(4));
    assert_eq!(rig.statuses(), [100, 503, 503, 503, 503]);
    rig.receive(&request("ACK", 1, "x", "", ""));
    rig.pass(Duration::from_secs(20));
    assert_eq!((rig.statuses().len(), rig.endpoint.n_calls()), (0, 0));
}

#[test]
fn a_change_of_the_call_is_offered_and_answered() {
    let mut rig = Rig::open();
    let (call, tag) = rig.connected("");
    rig.receive(&request("INVITE", 2, &tag, "", SDP));
    assert_eq!(rig.events.pop_front(), Some(Event::Offer { call, offer: Some(Bytes::from_static(SDP.as_bytes())) }));
    rig.receive(&request("INVITE", 3, &tag, "", SDP));
    rig.endpoint.answer_offer(rig.now, call, Ok(SDP));
    rig.drain();
    assert_eq!(rig.statuses(), [100, 500, 200], "one change at a time");
    rig.receive(&request("ACK", 2, &tag, "", ""));
    assert_eq!(rig.events.len(), 0, "it was connected before");
    rig.receive(&request("INVITE", 4, &tag, "", SDP));
    rig.endpoint.answer_offer(rig.now, call, Err(488));
    rig.drain();
    assert_eq!(rig.statuses(), [100, 488]);
    rig.receive(&request("ACK", 4, &tag, "", ""));
    rig.receive(&request("UPDATE", 5, &tag, "", SDP));
    rig.events.clear();
    rig.endpoint.answer_offer(rig.now, call, Ok(SDP));
    rig.drain();
    let answer = rig.last();
    assert_eq!((answer.status(), answer.body.is_empty()), (Some(200), false));
    rig.receive(&request("BYE", 6, &tag, "", ""));
    assert_eq!(rig.events.pop_front(), Some(Event::Ended { call, cause: EndCause::Bye }));
}

#[test]
fn the_answer_to_our_offer_of_a_change_comes_with_the_acknowledgement() {
    let mut rig = Rig::open();
    let (call, tag) = rig.connected("");
    rig.receive(&request("INVITE", 2, &tag, "", ""));
    assert_eq!(rig.events.pop_front(), Some(Event::Offer { call, offer: None }));
    rig.endpoint.answer_offer(rig.now, call, Ok(SDP));
    rig.drain();
    rig.receive(&request("ACK", 2, &tag, "", SDP));
    assert_eq!(rig.events.pop_front(), Some(Event::OfferAnswered { call, answer: Bytes::from(SDP) }));
    rig.receive(&request("ACK", 2, &tag, "", SDP));
    assert_eq!(rig.events.len(), 0, "once, though it came twice");
    for (number, answer) in [(3, Ok(SDP)), (4, Err(488))] {
        rig.receive(&request("INVITE", number, &tag, "", SDP));
        rig.events.clear();
        rig.endpoint.answer_offer(rig.now, call, answer);
        rig.drain();
        rig.receive(&request("ACK", number, &tag, "", SDP));
        assert_eq!(rig.events.len(), 0, "the offer was the peer's");
    }
}

#[test]
fn the_session_timer_ends_a_call_that_is_not_refreshed() {
    let mut rig = Rig::open();
    let (call, tag) = rig.connected("Supported: timer\r\nSession-Expires: 120\r\n");
    rig.pass(Duration::from_secs(80));
    rig.receive(&request("UPDATE", 2, &tag, "Supported: timer\r\nSession-Expires: 120;refresher=uac\r\n", ""));
    let answer = rig.last();
    assert_eq!(answer.get("session-expires"), Some("120;refresher=uac"));
    rig.pass(Duration::from_secs(80));
    assert_eq!(rig.events.len(), 0, "it was refreshed");
    rig.pass(Duration::from_secs(10));
    assert_eq!(rig.events.pop_front(), Some(Event::Ended { call, cause: EndCause::Expired }));
    assert_eq!(rig.last().method(), Some(Method::Bye));
}

#[test]
fn we_refresh_a_session_where_the_peer_wants_it_and_a_dead_peer_is_found() {
    let mut rig = Rig::open();
    let (call, _) = rig.connected("Allow: INVITE, UPDATE\r\nSession-Expires: 120;refresher=uas\r\n");
    rig.pass(Duration::from_secs(61));
    let update = rig.sent.front().unwrap().1.clone();
    assert_eq!((update.method(), update.get("session-expires")), (Some(Method::Update), Some("120;refresher=uac")));
    rig.sent.clear();
    rig.receive(std::str::from_utf8(&update.answer(200, "OK", None).write()).unwrap());
    rig.pass(Duration::from_secs(100));
    assert_eq!(rig.events.pop_front(), Some(Event::Ended { call, cause: EndCause::Failed }), "32 s after the next one");
    let mut rig = Rig::open();
    rig.receive(&request("INVITE", 1, "", "Session-Expires: 30\r\n", SDP));
    let refusal = rig.last();
    assert_eq!((refusal.status(), refusal.get("min-se")), (Some(422), Some("90")));
}

#[test]
fn the_answer_to_a_refresh_names_the_refresher() {
    // A call with a refresh of ours under way; gives the refresh, too.
    let refreshing = || {
        let mut rig = Rig::open();
        let (call, tag) = rig.connected("Allow: INVITE, UPDATE\r\nSession-Expires: 120;refresher=uas\r\n");
        rig.pass(Duration::from_secs(60));
        let update = rig.last();
        assert_eq!(update.method(), Some(Method::Update));
        (rig, call, tag, update)
    };
    let ours = ("session-expires", "120;refresher=uac");
    let (mut rig, call, _, update) = refreshing();
    rig.respond(&update, 200, &[("session-expires", "120;refresher=uas")], "");
    rig.pass(Duration::from_secs(87));
    assert_eq!((rig.methods(), rig.events.len()), (Vec::new(), 0), "the peer refreshes from now on");
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.events.pop_front(), Some(Event::Ended { call, cause: EndCause::Expired }));

    // A refresh of the peer has crossed ours.
    let (mut rig, _, tag, update) = refreshing();
    rig.receive(&request("UPDATE", 2, &tag, "Supported: timer\r\nSession-Expires: 120;refresher=uac\r\n", ""));
    assert_eq!(rig.statuses(), [200]);
    rig.respond(&update, 200, &[ours], "");
    rig.pass(Duration::from_secs(60));
    assert_eq!((rig.methods(), rig.events.len()), (vec![Method::Update], 0));

    // The peer has switched the session timer off meanwhile.
    let (mut rig, _, tag, update) = refreshing();
    rig.receive(&request("UPDATE", 2, &tag, "", ""));
    assert_eq!(rig.statuses(), [200]);
    rig.respond(&update, 200, &[ours], "");
    rig.pass(Duration::from_secs(600));
    assert_eq!((rig.methods(), rig.events.len()), (Vec::new(), 0), "the call goes on");
}

#[test]
fn a_refresh_that_is_refused_is_tried_again_before_the_session_ends() {
    let mut rig = Rig::open();
    rig.connected("Allow: INVITE, UPDATE\r\nSession-Expires: 160;refresher=uas\r\n");
    rig.pass(Duration::from_secs(80));
    for status in [491, 500, 422] {
        let update = rig.last();
        assert_eq!(update.method(), Some(Method::Update));
        rig.respond(&update, status, &[], "");
        rig.pass(Duration::from_secs(9));
        assert!(rig.methods().is_empty(), "after {status}");
        rig.pass(Duration::from_secs(1));
    }
    // The interval is too short for a proxy: it is raised at once.
    let update = rig.last();
    rig.respond(&update, 422, &[("min-se", "320")], "");
    rig.pass(Duration::ZERO);
    let update = rig.last();
    assert_eq!((update.get("session-expires"), update.get("min-se")), (Some("320;refresher=uac"), Some("320")));
    rig.respond(&update, 200, &[("session-expires", "320;refresher=uac")], "");
    rig.pass(Duration::from_secs(159));
    assert!(rig.methods().is_empty());
    rig.pass(Duration::from_secs(1));
    // UPDATE is not understood after all.
    let update = rig.last();
    rig.respond(&update, 405, &[], "");
    rig.pass(Duration::from_secs(20));
    let invite = rig.last();
    assert_eq!((invite.method(), invite.body), (Some(Method::Invite), Bytes::from(SDP)));
    assert_eq!(rig.events.len(), 0, "the call goes on");
}

impl Rig {
    /// Calls the peer; gives the call and its INVITE.
    fn calling(&mut self) -> (CallId, Message) {
        let outgoing = OutgoingCall {
            trunk: TrunkId(0),
            peer: self.peer,
            target: "sip:+4930123@192.0.2.9".into(),
            from: "+15550100".into(),
            offer: SDP.into(),
        };
        let call = self.endpoint.invite(self.now, outgoing).expect("there is room");
        self.drain();
        (call, self.last())
    }

    /// The peer's response to a request of ours.
    fn respond(&mut self, request: &Message, status: u16, headers: &[(&str, &str)], body: &'static str) {
        let mut response = request.answer(status, "So", Some("far"));
        response.add("contact", "<sip:bob@10.0.0.7:5064>");
        for (name, value) in headers {
            response.add(name, *value);
        }
        response.body = Bytes::from_static(body.as_bytes());
        self.receive(std::str::from_utf8(&response.write()).unwrap());
    }

    fn methods(&mut self) -> Vec<Method> {
        self.sent.drain(..).filter_map(|(_, message)| message.method()).collect()
    }
}

#[test]
fn an_ipv6_address_of_ours_stands_in_brackets() {
    let mut rig = Rig::open();
    rig.endpoint.config.advertised = "[2001:db8::1]:5060".parse().unwrap();
    let (_, invite) = rig.calling();
    assert_eq!(invite.from().map(|from| from.uri), Some("sip:+15550100@[2001:db8::1]".to_owned()));
    assert!(invite.get("call-id").is_some_and(|id| id.ends_with("@[2001:db8::1]")));
    assert_eq!(invite.get("contact"), Some("<sip:[2001:db8::1]:5060>"));
}

#[test]
fn a_call_of_ours_rings_is_answered_and_ended_by_either_side() {
    let mut rig = Rig::open();
    let (call, invite) = rig.calling();
    assert_eq!((invite.method(), invite.body.clone()), (Some(Method::Invite), Bytes::from(SDP)));
    assert_eq!(invite.get("from").map(|from| from.starts_with("<sip:+15550100@192.0.2.1>;tag=")), Some(true));
    rig.respond(&invite, 100, &[], "");
    rig.respond(&invite, 180, &[], "");
    rig.pass(Duration::from_secs(20));
    assert_eq!((rig.events.pop_front(), rig.sent.len()), (Some(Event::Ringing { call }), 0), "it is not sent again");
    rig.respond(&invite, 200, &[("record-route", "<sip:a.example;lr>, <sip:b.example;lr>")], SDP);
    assert_eq!(rig.events.pop_front(), Some(Event::Answered { call, answer: Bytes::from(SDP) }));
    let ack = rig.last();
    assert_eq!((ack.method(), ack.get("cseq")), (Some(Method::Ack), Some("1 ACK")));
    let StartLine::Request { uri, .. } = &ack.start else { panic!("a request") };
    assert_eq!(uri, "sip:bob@10.0.0.7:5064");
    assert_eq!(ack.all("route").collect::<Vec<_>>(), ["<sip:b.example;lr>", "<sip:a.example;lr>"]);
    assert_ne!(ack.via().unwrap().branch(), invite.via().unwrap().branch(), "a transaction of its own");
    rig.respond(&invite, 200, &[], SDP);
    assert_eq!(rig.last(), ack, "an answer that comes again is acknowledged again");
    rig.endpoint.hang_up(rig.now, call);
    rig.drain();
    let bye = rig.last();
    assert_eq!((bye.method(), bye.get("cseq")), (Some(Method::Bye), Some("2 BYE")));
    rig.respond(&bye, 200, &[], "");
    assert_eq!((rig.endpoint.n_calls(), rig.events.len()), (0, 0));

    let (call, invite) = rig.calling();
    rig.respond(&invite, 200, &[], SDP);
    rig.events.clear();
    let tag = invite.from().unwrap().tag().unwrap().to_owned();
    let bye = request("BYE", 7, &tag, "", "").replace("one@192.0.2.9", invite.get("call-id").unwrap());
    rig.receive(&bye);
    assert_eq!(rig.events.pop_front(), Some(Event::Ended { call, cause: EndCause::Bye }));
}

#[test]
fn a_peer_without_update_is_refreshed_by_an_invite_that_repeats_our_description() {
    let mut rig = Rig::open();
    let (call, invite) = rig.calling();
    let session = ("session-expires", "120;refresher=uac");
    rig.respond(&invite, 200, &[session, ("record-route", "<sip:a.example;lr>")], SDP);
    rig.events.clear();
    rig.sent.clear();
    rig.pass(Duration::from_secs(60));
    let refresh = rig.last();
    assert_eq!((refresh.method(), refresh.get("cseq")), (Some(Method::Invite), Some("2 INVITE")));
    assert_eq!((refresh.get("session-expires"), &refresh.body), (Some(session.1), &Bytes::from(SDP)));
    assert_eq!((refresh.get("content-type"), refresh.to().unwrap().tag()), (Some("application/sdp"), Some("far")));
    rig.respond(&refresh, 100, &[], "");
    rig.pass(Duration::from_secs(5));
    assert!(rig.methods().is_empty(), "it is not sent again");
    let tag = invite.from().unwrap().tag().unwrap().to_owned();
    let crossing = request("INVITE", 7, &tag, "", SDP).replace("one@192.0.2.9", invite.get("call-id").unwrap());
    rig.receive(&crossing);
    assert_eq!(rig.last().status(), Some(491), "one change at a time");
    rig.respond(&refresh, 200, &[session], SDP);
    assert_eq!(rig.events.pop_front(), Some(Event::OfferAnswered { call, answer: Bytes::from(SDP) }));
    let ack = rig.last();
    assert_eq!((ack.method(), ack.get("cseq")), (Some(Method::Ack), Some("2 ACK")));
    rig.respond(&refresh, 200, &[session], SDP);
    assert_eq!((rig.last(), rig.events.len()), (ack, 0), "an answer that comes again is acknowledged again");
    // The next one is refused, and tried again.
    rig.pass(Duration::from_secs(60));
    let refresh = rig.last();
    rig.respond(&refresh, 491, &[], "");
    let ack = rig.last();
    assert_eq!((ack.method(), ack.get("cseq")), (Some(Method::Ack), Some("3 ACK")));
    assert_eq!((ack.get("via"), ack.get("route")), (refresh.get("via"), Some("<sip:a.example;lr>")));
    rig.pass(Duration::from_secs(8));
    let refresh = rig.last();
    assert_eq!((refresh.method(), refresh.get("cseq")), (Some(Method::Invite), Some("4 INVITE")));
    rig.respond(&refresh, 481, &[], "");
    assert_eq!(
        (rig.methods(), rig.events.pop_front()),
        (vec![Method::Ack], Some(Event::Ended { call, cause: EndCause::Failed }))
    );
    rig.pass(Duration::from_secs(40));
    assert!(rig.endpoint.n_calls() == 0 && rig.endpoint.by_branch.is_empty());
}

#[test]
fn a_refresh_by_invite_that_has_a_provisional_response_waits_as_long_as_a_call_rings() {
    let mut rig = Rig::open();
    let (call, invite) = rig.calling();
    let session = ("session-expires", "120;refresher=uac");
    rig.respond(&invite, 200, &[session], SDP);
    rig.events.clear();
    rig.pass(Duration::from_secs(60));
    let refresh = rig.last();
    assert_eq!(refresh.method(), Some(Method::Invite));
    rig.respond(&refresh, 100, &[], "");
    rig.pass(Duration::from_secs(40));
    assert_eq!((rig.methods(), rig.events.len()), (Vec::new(), 0), "the call goes on");
    rig.respond(&refresh, 200, &[session], SDP);
    assert_eq!(rig.events.pop_front(), Some(Event::OfferAnswered { call, answer: Bytes::from(SDP) }));
    rig.pass(Duration::from_secs(60));
    let refresh = rig.last();
    assert_eq!(refresh.method(), Some(Method::Invite));
    rig.respond(&refresh, 100, &[], "");
    rig.pass(Duration::from_secs(100));
    rig.respond(&refresh, 183, &[], "");
    rig.pass(Duration::from_secs(79));
    assert_eq!((rig.methods(), rig.events.len()), (Vec::new(), 0));
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.events.pop_front(), Some(Event::Ended { call, cause: EndCause::Failed }), "after the first one");
    assert_eq!(rig.methods(), [Method::Bye]);
}

#[test]
fn a_call_of_ours_proves_its_password_and_a_refusal_is_acknowledged() {
    let mut rig = Rig::new(vec![trunk_of(&["192.0.2.0/24"], Some("secret"))]);
    let (call, invite) = rig.calling();
    let challenge = ("proxy-authenticate", "Digest realm=\"trunk\", nonce=\"n\", algorithm=MD5, qop=\"auth\"");
    rig.respond(&invite, 407, &[challenge], "");
    let again = rig.last();
    assert_eq!((again.method(), again.get("cseq")), (Some(Method::Invite), Some("2 INVITE")));
    assert!(again.get("proxy-authorization").is_some_and(|proof| proof.contains("username=\"ann\"")));
    rig.respond(&again, 407, &[challenge], "");
    let refused = |status| Some(Event::Ended { call, cause: EndCause::Refused(status) });
    assert_eq!(rig.events.pop_front(), refused(407), "a wrong password");

    let mut rig = Rig::open();
    let (_, invite) = rig.calling();
    rig.respond(&invite, 486, &[], "");
    assert_eq!(rig.events.pop_front(), refused(486));
    let ack = rig.last();
    assert_eq!((ack.method(), ack.via().unwrap().branch()), (Some(Method::Ack), invite.via().unwrap().branch()));
    assert_eq!(ack.to().unwrap().tag(), Some("far"));
    rig.respond(&invite, 486, &[], "");
    assert_eq!(rig.methods(), [Method::Ack]);
    rig.pass(TRANSACTION + T4);
    assert_eq!((rig.endpoint.n_calls(), rig.events.len(), rig.sent.len()), (0, 0, 0));
}

#[test]
fn the_acknowledgement_of_a_challenged_invite_has_its_credentials() {
    let mut rig = Rig::new(vec![trunk_of(&["192.0.2.0/24"], Some("secret"))]);
    let fields = "Digest realm=\"trunk\", nonce=\"n\", algorithm=MD5, qop=\"auth\"";
    let session = ("session-expires", "120;refresher=uac");
    let (_, invite) = rig.calling();
    rig.respond(&invite, 407, &[("proxy-authenticate", fields)], "");
    let invite = rig.last();
    rig.respond(&invite, 200, &[session], SDP);
    let ack = rig.last();
    assert_eq!((ack.method(), ack.get("cseq")), (Some(Method::Ack), Some("2 ACK")));
    assert!(ack.get("proxy-authorization").is_some_and(|proof| proof.contains("username=\"ann\"")));
    assert_eq!(ack.get("proxy-authorization"), invite.get("proxy-authorization"));
    rig.pass(Duration::from_secs(60));
    let refresh = rig.last();
    rig.respond(&refresh, 401, &[("www-authenticate", fields)], "");
    let refresh = rig.last();
    assert_eq!((refresh.method(), refresh.get("cseq")), (Some(Method::Invite), Some("4 INVITE")));
    rig.respond(&refresh, 200, &[session], SDP);
    let ack = rig.last();
    assert_eq!((ack.method(), ack.get("cseq")), (Some(Method::Ack), Some("4 ACK")));
    assert!(ack.get("authorization").is_some_and(|proof| proof.contains("username=\"ann\"")));
    assert_eq!(ack.get("authorization"), refresh.get("authorization"));
}

#[test]
fn a_challenge_inside_a_call_is_answered_once() {
    let mut rig = Rig::new(vec![trunk_of(&["192.0.2.0/24"], Some("secret"))]);
    let fields = "Digest realm=\"trunk\", nonce=\"n\", algorithm=MD5, qop=\"auth\"";
    // Challenges the request that was sent last; gives what is sent then.
    let challenged = |rig: &mut Rig, status: u16, asked: &str| {
        let before = rig.last();
        rig.respond(&before, status, &[(asked, fields)], "");
        let again = rig.last();
        assert_eq!(again.method(), before.method());
        assert_eq!(again.sequence().unwrap().0, before.sequence().unwrap().0 + 1);
        assert_ne!(again.via().unwrap().branch(), before.via().unwrap().branch());
        assert_eq!((again.get("refer-to"), again.to()), (before.get("refer-to"), before.to()));
        again
    };
    let is_proof = |proof: Option<&str>| {
        proof.is_some_and(|proof| proof.contains("username=\"ann\"") && proof.contains("uri=\"sip:bob@10.0.0.7:5064\""))
    };
    let session = [("allow", "UPDATE"), ("session-expires", "120;refresher=uac")];
    let (call, invite) = rig.calling();
    rig.respond(&invite, 200, &session, SDP);
    rig.events.clear();
    assert!(rig.endpoint.refer(rig.now, call, "tel:+4930123"));
    rig.drain();
    let refer = challenged(&mut rig, 407, "proxy-authenticate");
    assert!(is_proof(refer.get("proxy-authorization")) && rig.events.is_empty());
    rig.respond(&refer, 202, &[], "");
    assert_eq!(rig.events.pop_front(), Some(Event::Transfer { call, progress: TransferProgress::Accepted }));
    rig.pass(Duration::from_secs(60));
    let update = challenged(&mut rig, 401, "www-authenticate");
    assert!(is_proof(update.get("authorization")));
    rig.respond(&update, 200, &[], "");
    rig.endpoint.hang_up(rig.now, call);
    rig.drain();
    let bye = challenged(&mut rig, 407, "proxy-authenticate");
    assert!(is_proof(bye.get("proxy-authorization")));
    assert_eq!(rig.endpoint.n_calls(), 1, "the peer has not ended it yet");
    rig.respond(&bye, 200, &[], "");
    assert_eq!((rig.endpoint.n_calls(), rig.events.len()), (0, 0));

    // A wrong password is not tried again.
    let (call, invite) = rig.calling();
    rig.respond(&invite, 200, &[], SDP);
    rig.endpoint.hang_up(rig.now, call);
    rig.drain();
    let bye = challenged(&mut rig, 407, "proxy-authenticate");
    rig.respond(&bye, 407, &[("proxy-authenticate", fields)], "");
    assert_eq!((rig.endpoint.n_calls(), rig.methods()), (0, Vec::new()));
    assert!(rig.endpoint.by_branch.is_empty());
}

#[test]
fn a_call_of_ours_is_given_up_by_a_cancel_once_something_answers() {
    let mut rig = Rig::open();
    let (call, invite) = rig.calling();
    rig.endpoint.hang_up(rig.now, call);
    rig.drain();
    assert!(rig.sent.is_empty(), "nothing may be cancelled that may not have arrived");
    rig.respond(&invite, 100, &[], "");
    let cancel = rig.last();
    assert_eq!((cancel.method(), cancel.get("cseq")), (Some(Method::Cancel), Some("1 CANCEL")));
    assert_eq!(cancel.via().unwrap().branch(), invite.via().unwrap().branch());
    rig.respond(&cancel, 200, &[], "");
    rig.respond(&invite, 487, &[], "");
    assert_eq!((rig.methods(), rig.events.len()), (vec![Method::Ack], 0));

    // The answer has crossed the CANCEL.
    let (call, invite) = rig.calling();
    rig.respond(&invite, 100, &[], "");
    rig.endpoint.hang_up(rig.now, call);
    rig.drain();
    rig.sent.clear();
    rig.respond(&invite, 200, &[], SDP);
    assert_eq!((rig.methods(), rig.events.len()), (vec![Method::Ack, Method::Bye], 0));
}

#[test]
fn a_call_of_ours_is_cancelled_once_even_if_the_peer_rings_on() {
    let mut rig = Rig::open();
    let (call, invite) = rig.calling();
    rig.respond(&invite, 100, &[], "");
    rig.endpoint.hang_up(rig.now, call);
    rig.drain();
    let cancel = rig.last();
    rig.respond(&cancel, 200, &[], "");
    rig.pass(Duration::from_secs(20));
    for status in [180, 183, 180] {
        rig.respond(&invite, status, &[], "");
    }
    assert_eq!((rig.methods(), rig.events.len()), (Vec::new(), 0));
    rig.pass(Duration::from_secs(13));
    assert_eq!(rig.endpoint.phase_of(call), Some(Phase::Ended), "32 s after the CANCEL, not after the last ringing");
}

#[test]
fn nobody_answers_a_call_of_ours() {
    let mut rig = Rig::open();
    let (call, _) = rig.calling();
    rig.pass(Duration::from_secs(33));
    assert_eq!(rig.methods(), vec![Method::Invite; 6], "after 0.5, 1.5, 3.5, 7.5, 15.5 and 31.5 s");
    assert_eq!(rig.events.pop_front(), Some(Event::Ended { call, cause: EndCause::Failed }));

    let (call, invite) = rig.calling();
    rig.respond(&invite, 180, &[], "");
    rig.events.clear();
    rig.pass(Duration::from_secs(181));
    assert_eq!(rig.events.pop_front(), Some(Event::Ended { call, cause: EndCause::Unanswered }));
    assert!(rig.methods().contains(&Method::Cancel));
    rig.respond(&invite, 487, &[], "");
    rig.pass(Duration::from_secs(70));
    assert_eq!((rig.endpoint.n_calls(), rig.events.len()), (0, 0));
    let wrong = |change: fn(&mut OutgoingCall)| {
        let mut outgoing = OutgoingCall {
            trunk: TrunkId(0),
            peer: peer("192.0.2.9:5062", Transport::Udp),
            target: "sip:a@example.com".into(),
            from: "me".into(),
            offer: SDP.into(),
        };
        change(&mut outgoing);
        outgoing
    };
    for (outgoing, error) in [
        (wrong(|o| o.from = "a> x".into()), InviteError::Caller),
        (wrong(|o| o.from.clear()), InviteError::Caller),
        (wrong(|o| o.target = "a b".into()), InviteError::Target),
    ] {
        assert_eq!(rig.endpoint.invite(rig.now, outgoing), Err(error));
    }
    for _ in 0..MAX_CALLS {
        assert!(rig.endpoint.invite(rig.now, wrong(|_| {})).is_ok());
    }
    assert_eq!(rig.endpoint.invite(rig.now, wrong(|_| {})), Err(InviteError::Full));
}

#[test]
fn a_peer_is_asked_to_take_our_place_in_another_call() {
    let mut rig = Rig::open();
    let (call, _) = rig.connected("");
    let (replaced, invite) = rig.calling();
    assert!(!rig.endpoint.refer_replacing(rig.now, call, replaced), "it is not answered");
    rig.respond(&invite, 200, &[], SDP);
    rig.sent.clear();
    assert!(rig.endpoint.refer_replacing(rig.now, call, replaced));
    assert!(!rig.endpoint.refer_replacing(rig.now, call, replaced), "one at a time");
    rig.drain();
    let refer = rig.last();
    let tag = invite.from().unwrap().tag().unwrap().to_owned();
    let call_id = invite.get("call-id").unwrap().replace('@', "%40");
    let expected = format!("<sip:bob@10.0.0.7:5064?Replaces={call_id}%3Bto-tag%3Dfar%3Bfrom-tag%3D{tag}>");
    assert_eq!((refer.method(), refer.get("refer-to")), (Some(Method::Refer), Some(expected.as_str())));
    assert_eq!(refer.get("call-id"), Some("one@192.0.2.9"));
    assert_eq!(refer.get("referred-by"), Some("<sip:100@192.0.2.1>"));

    // A contact that cannot stand before the header.
    let (replaced, invite) = rig.calling();
    let contact = [("contact", "<sip:bob@10.0.0.7?Subject=x>")];
    let mut answer = invite.answer(200, "OK", Some("far"));
    answer.add("contact", contact[0].1);
    answer.body = Bytes::from_static(SDP.as_bytes());
    rig.receive(std::str::from_utf8(&answer.write()).unwrap());
    rig.pass(Duration::from_secs(40));
    assert!(!rig.endpoint.refer_replacing(rig.now, call, replaced));
}

#[test]
fn a_call_that_would_replace_another_is_refused() {
    let mut rig = Rig::open();
    let (_, tag) = rig.connected("");
    let mut refused = |replaces: &str| {
        let invite = request("INVITE", 1, "", &format!("{replaces}\r\nX: {}\r\n", "x".repeat(300)), SDP);
        rig.receive(&invite.replace("Call-ID: one@", "Call-ID: two@").replace("z9hG4bK1", "z9hG4bK-two"));
        rig.last().status()
    };
    let of = |call_id: &str, to: &str, from: &str| format!("Replaces: {call_id};to-tag={to};from-tag={from}");
    for (replaces, status) in [
        (of("one@192.0.2.9", &tag, "far"), 603),
        (of("one@192.0.2.9", &tag, "far") + ";early-only", 486),
        (of("one@192.0.2.9", &tag, "near"), 481),
        (of("one@192.0.2.9", "other", "far"), 481),
        (of("other@192.0.2.9", &tag, "far"), 481),
        ("Replaces: one@192.0.2.9;to-tag=1".into(), 400),
        ("Replaces: one@192.0.2.9;;".into(), 400),
    ] {
        assert_eq!(refused(&replaces), Some(status), "{replaces}");
        let required = format!("Require: replaces\r\n{replaces}");
        assert_eq!(refused(&required), Some(420), "{replaces}");
    }
    assert_eq!((rig.endpoint.n_calls(), rig.events.len()), (1, 0));
}

#[test]
fn a_transfer_is_asked_for_and_the_peer_says_what_comes_of_it() {
    let mut rig = Rig::open();
    let (call, tag) = rig.connected("");
    let progress = |rig: &mut Rig| match rig.events.pop_front() {
        Some(Event::Transfer { progress, .. }) => Some(progress),
        None => None,
        other => panic!("{other:?}"),
    };
    for target in ["", "tel:", "mailto:a@example.com", "sip:a@example.com>\r\nX: y", "sip:a@example.com?Replaces=x"] {
        assert!(!rig.endpoint.refer(rig.now, call, target), "{target}");
    }
    assert!(rig.endpoint.refer(rig.now, call, "tel:+4930123"));
    assert!(!rig.endpoint.refer(rig.now, call, "tel:+4930124"), "one at a time");
    rig.drain();
    let refer = rig.last();
    assert_eq!((refer.method(), refer.get("refer-to")), (Some(Method::Refer), Some("<tel:+4930123>")));
    assert_eq!(refer.get("referred-by"), Some("<sip:100@192.0.2.1>"));
    rig.receive(&request("NOTIFY", 2, &tag, "Event: refer\r\n", "SIP/2.0 200 OK\r\n"));
    assert_eq!(progress(&mut rig), None, "it was not accepted");
    rig.receive(std::str::from_utf8(&refer.answer(202, "Accepted", None).write()).unwrap());
    assert_eq!(progress(&mut rig), Some(TransferProgress::Accepted));
    rig.receive(&request("NOTIFY", 3, &tag, "Event: refer\r\n", "SIP/2.0 100 Trying\r\n"));
    rig.receive(&request("NOTIFY", 4, &tag, "Event: dialog\r\n", "SIP/2.0 200 OK\r\n"));
    assert_eq!(progress(&mut rig), None);
    rig.receive(&request("NOTIFY", 5, &tag, "Event: refer;id=1\r\n", "SIP/2.0 486 Busy Here\r\n"));
    rig.receive(&request("NOTIFY", 6, &tag, "Event: refer;id=1\r\n", "SIP/2.0 200 OK\r\n"));
    assert_eq!(progress(&mut rig), Some(TransferProgress::Failed(486)));
    assert_eq!(progress(&mut rig), None, "it is over");
    assert_eq!(rig.statuses(), [200; 5]);

    assert!(rig.endpoint.refer(rig.now, call, "sip:office@pbx.example.com"));
    rig.pass(Duration::from_secs(33));
    assert_eq!(progress(&mut rig), Some(TransferProgress::Failed(408)), "no answer");
    rig.sent.clear();
    assert!(rig.endpoint.refer(rig.now, call, "sips:office@pbx.example.com"));
    rig.drain();
    let refer = rig.last();
    rig.receive(std::str::from_utf8(&refer.answer(603, "Decline", None).write()).unwrap());
    assert_eq!(progress(&mut rig), Some(TransferProgress::Failed(603)));
    assert_eq!((rig.endpoint.n_calls(), rig.events.len()), (1, 0), "the call goes on");
}

#[test]
fn keys_come_by_info() {
    let mut rig = Rig::open();
    let (call, tag) = rig.connected("");
    let relay = request("INFO", 2, &tag, "", "Signal=#\r\nDuration=160\r\n").replace("sdp", "dtmf-relay");
    rig.receive(&relay);
    rig.receive(&relay);
    assert_eq!(rig.events.drain(..).collect::<Vec<_>>(), [Event::Key { call, key: '#' }], "once, though it came twice");
    rig.receive(&request("INFO", 3, &tag, "", "x").replace("sdp", "octet-stream"));
    assert_eq!(rig.last().status(), Some(415));
}

#[test]
fn digest_lets_a_caller_in_that_knows_the_password() {
    let mut rig = Rig::new(vec![trunk_of(&[], Some("secret"))]);
    let padding = format!("Subject: {}\r\n", "x".repeat(80));
    rig.receive(&request("INVITE", 1, "", &padding, SDP));
    let refusal = rig.last();
    assert_eq!((refusal.status(), rig.endpoint.n_calls()), (Some(401), 0), "a challenge leaves nothing");
    let fields = Fields::parse(refusal.get("www-authenticate").unwrap()).unwrap();
    let answer = |password: &str| {
        let credentials = Credentials { username: "ann".into(), password: password.into() };
        fields.answer(&credentials, "INVITE", "sip:100@192.0.2.1", "c").unwrap()
    };
    rig.receive(&request("INVITE", 2, "", &format!("Authorization: {}\r\n", answer("wrong")), SDP));
    assert_eq!(rig.last().status(), Some(403));
    assert!(matches!(rig.events.pop_front(), Some(Event::Refused(refused)) if refused.reason == "wrong password"));
    rig.receive(&request("INVITE", 3, "", &format!("Authorization: {}\r\n", answer("secret")), SDP));
    assert_eq!(rig.incoming().trunk, TrunkId(0));
    rig.pass(Duration::from_secs(61));
    rig.sent.clear();
    let late = request("INVITE", 4, "", &format!("Authorization: {}\r\n", answer("secret")), SDP);
    rig.receive(&late.replace("one@", "two@"));
    assert!(rig.last().get("www-authenticate").unwrap().contains("stale=true"));
}

#[test]
fn a_password_that_was_replaced_no_longer_counts() {
    let mut rig = Rig::new(vec![trunk_of(&[], Some("former"))]);
    let padding = format!("Subject: {}\r\n", "x".repeat(80));
    rig.receive(&request("INVITE", 1, "", &padding, SDP));
    let challenge = rig.last().get("www-authenticate").unwrap().to_owned();
    let proof = |password: &str| {
        let credentials = Credentials { username: "ann".into(), password: password.into() };
        let proof = credentials.answer(&challenge, "INVITE", "sip:100@192.0.2.1", "c").unwrap();
        format!("Authorization: {proof}\r\n")
    };
    rig.endpoint.replace_password(rig.now, TrunkId(0), "new");
    rig.endpoint.replace_password(rig.now, TrunkId(1), "of no trunk");
    rig.receive(&request("INVITE", 2, "", &proof("former"), SDP));
    assert_eq!(rig.last().status(), Some(403));
    rig.events.clear();
    rig.receive(&request("INVITE", 3, "", &proof("new"), SDP));
    assert_eq!(rig.incoming().trunk, TrunkId(0));
    rig.sent.clear();

    // A call of ours that is under way.
    let (_, invite) = rig.calling();
    rig.endpoint.replace_password(rig.now, TrunkId(0), "newer");
    let challenge = "Digest realm=\"trunk\", nonce=\"n\"";
    rig.respond(&invite, 407, &[("proxy-authenticate", challenge)], "");
    let newer = Credentials { username: "ann".into(), password: "newer".into() };
    let proof = newer.answer(challenge, "INVITE", "sip:+4930123@192.0.2.9", "").unwrap();
    assert_eq!(rig.last().get("proxy-authorization"), Some(proof.as_str()));
}

#[test]
fn a_registration_with_a_wrong_password_is_tried_at_once_with_the_new_one() {
    let mut rig = Rig::new(vec![registered_trunk()]);
    let challenge = "Digest realm=\"x\", nonce=\"n\"";
    // The registrar is looked up, and asks for the password.
    let challenged = |rig: &mut Rig| {
        rig.pass(Duration::ZERO);
        rig.endpoint.resolved(rig.now, TrunkId(0), &["192.0.2.9:5062".parse().unwrap()]);
        rig.drain();
        let mut asked = rig.last().answer(401, "Unauthorized", Some("r"));
        asked.add("www-authenticate", challenge);
        rig.receive(std::str::from_utf8(&asked.write()).unwrap());
        rig.last()
    };
    let refused = challenged(&mut rig).answer(403, "Forbidden", Some("r"));
    rig.receive(std::str::from_utf8(&refused.write()).unwrap());
    assert_eq!(rig.events.pop_front(), Some(Event::Registered { registrar: TrunkId(0), result: Err(403) }));
    rig.endpoint.replace_password(rig.now, TrunkId(0), "secret");
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.resolves, 1, "it is the same");
    rig.endpoint.replace_password(rig.now, TrunkId(0), "new");
    let register = challenged(&mut rig);
    let new = Credentials { username: "ann".into(), password: "new".into() };
    let proof = new.answer(challenge, "REGISTER", "sip:sip.example.com", "").unwrap();
    assert_eq!((rig.resolves, register.get("authorization")), (2, Some(proof.as_str())));
}

#[test]
fn a_stranger_gets_nothing_longer_than_what_it_sent_and_leaves_nothing() {
    let mut rig = Rig::new(vec![trunk_of(&["203.0.113.0/24"], None), trunk_of(&["203.0.113.9/32"], Some("secret"))]);
    rig.receive(&request("INVITE", 1, "", "", SDP));
    assert_eq!(rig.last().status(), Some(403));
    let mut n_sent = 0;
    let methods = ["INVITE", "OPTIONS", "REGISTER", "SUBSCRIBE", "BYE", "CANCEL", "UPDATE", "ACK", "FROB"];
    for (method, n_padding) in methods.into_iter().flat_map(|method| (0..200).step_by(20).map(move |n| (method, n))) {
        let padding = "x".repeat(n_padding);
        let text = format!(
            "{method} sip:1@h SIP/2.0\r\nv: SIP/2.0/UDP h;branch=z9hG4bK{method}\r\nf: <sip:a@h>;tag=1\r\n\
             t: <sip:a@h>\r\ni: 1\r\nCSeq: 1 {method}\r\nm: <sip:a@h>\r\ns: {padding}\r\n\r\n"
        );
        rig.endpoint.receive(rig.now, rig.peer, text.as_bytes());
        while let Some(output) = rig.endpoint.poll() {
            if let Output::Send { to, bytes } = output {
                n_sent += 1;
                assert!(bytes.len() <= text.len(), "{method}: {} of {}", bytes.len(), text.len());
                assert_eq!(to.address.ip(), rig.peer.address.ip());
            }
        }
    }
    assert!(n_sent > 20, "{n_sent}");
    assert_eq!((rig.endpoint.n_calls(), rig.endpoint.answered.len(), rig.endpoint.next_deadline()), (0, 0, None));
}

#[test]
fn calls_that_begin_are_bounded_by_address() {
    let mut rig = Rig::open();
    let invite = |number: usize| {
        request("INVITE", 1, "", "", SDP)
            .replace("one@", &format!("{number}@"))
            .replace("z9hG4bK1", &format!("z9hG4bK-{number}-"))
    };
    for number in 0..MAX_CALLS_PER_ADDRESS {
        rig.receive(&invite(number));
    }
    assert_eq!(rig.endpoint.n_calls(), MAX_CALLS_PER_ADDRESS);
    rig.sent.clear();
    rig.receive(&invite(MAX_CALLS_PER_ADDRESS));
    let refusal = rig.last();
    assert_eq!((refusal.status(), refusal.get("retry-after")), (Some(503), Some("5")));
    rig.peer = peer("192.0.2.10:5060", Transport::Udp);
    rig.receive(&invite(MAX_CALLS_PER_ADDRESS + 1));
    assert_eq!(rig.endpoint.n_calls(), MAX_CALLS_PER_ADDRESS + 1, "another address is not refused");
    rig.pass(Duration::from_secs(300));
    assert_eq!(rig.endpoint.n_calls(), 0, "left without an answer, they end");
}

#[test]
fn a_dialog_is_closed_to_other_addresses_tags_and_old_numbers() {
    let mut rig = Rig::new(vec![trunk_of(&["192.0.2.9/32"], None)]);
    let (_, tag) = rig.connected("");
    rig.peer = peer("198.51.100.1:5062", Transport::Udp);
    rig.receive(&request("BYE", 2, &tag, "", ""));
    rig.peer = peer("192.0.2.9:5062", Transport::Udp);
    rig.receive(&request("BYE", 2, &tag, "", "").replace("tag=far", "tag=other"));
    rig.receive(&request("BYE", 2, "unknown", "", ""));
    rig.receive(&request("INFO", 1, &tag, "", ""));
    assert_eq!((rig.statuses(), rig.events.len()), (vec![481, 481, 481, 500], 0));
}

#[test]
fn responses_go_to_the_senders_machine_only() {
    let mut rig = Rig::open();
    let options =
        request("OPTIONS", 1, "", "", "").replace(";rport", "").replace("192.0.2.9:5062;", "198.51.100.7:5099;");
    rig.receive(&options);
    assert_eq!(rig.sent.back().unwrap().0.address, "192.0.2.9:5099".parse().unwrap());
    rig.receive(&request("OPTIONS", 2, "", "", ""));
    assert_eq!(rig.sent.back().unwrap().0.address, rig.peer.address);
    rig.peer = peer("192.0.2.9:40000", Transport::Tcp);
    rig.receive(&options.replace("bK1", "bK3"));
    assert_eq!(rig.sent.back().unwrap().0, rig.peer);
}

fn registered_trunk() -> Trunk {
    registered_by(Transport::Udp)
}

fn registered_by(transport: Transport) -> Trunk {
    let registration = Registration { host: "sip.example.com".into(), port: 5_060, transport, user: "4711".into() };
    Trunk { registration: Some(registration), ..trunk_of(&[], Some("secret")) }
}

#[test]
fn what_begins_by_tls_names_its_port_and_stays_there() {
    let mut rig = Rig::open();
    rig.peer = peer("192.0.2.9:40000", Transport::Tls);
    rig.receive(&request("INVITE", 1, "", "", SDP).replace("SIP/2.0/UDP", "SIP/2.0/TLS"));
    let call = rig.incoming().call;
    rig.endpoint.ring(rig.now, call);
    rig.endpoint.accept(rig.now, call, SDP);
    rig.drain();
    let (to, answer) = rig.sent.pop_back().unwrap();
    assert_eq!((to, answer.get("contact")), (rig.peer, Some("<sip:192.0.2.1:5061;transport=tls>")));
    let tag = answer.to().unwrap().tag().unwrap().to_owned();
    let by_tls = rig.peer;
    // The acknowledgement and a change by UDP, where anyone could read the keys of the answer.
    rig.peer = peer("192.0.2.9:5062", Transport::Udp);
    rig.receive(&request("ACK", 1, &tag, "", SDP));
    assert!(rig.events.is_empty());
    rig.peer = by_tls;
    rig.receive(&request("ACK", 1, &tag, "", ""));
    assert_eq!(rig.events.pop_front(), Some(Event::Connected { call, answer: None }));
    rig.sent.clear();
    rig.peer = peer("192.0.2.9:5062", Transport::Udp);
    rig.receive(&request("INVITE", 2, &tag, "", SDP));
    assert_eq!((rig.statuses(), rig.events.len()), (vec![481], 0));
    rig.peer = peer("192.0.2.9:40001", Transport::Tls);
    rig.receive(&request("INFO", 2, &tag, "", ""));
    assert_eq!(rig.statuses(), [200], "by another connection");
    rig.endpoint.hang_up(rig.now, call);
    rig.drain();
    let (to, bye) = rig.sent.pop_back().unwrap();
    assert!(to == rig.peer && bye.get("via").unwrap().starts_with("SIP/2.0/TLS 192.0.2.1:5061;"), "{bye:?}");
    rig.pass(Duration::from_secs(5));
    assert!(rig.sent.is_empty(), "a stream loses nothing");
}

#[test]
fn a_call_without_a_connection_fails_and_one_in_progress_goes_on() {
    let mut rig = Rig::open();
    rig.peer = peer("192.0.2.9:5061", Transport::Tls);
    let (call, invite) = rig.calling();
    assert!(invite.get("via").unwrap().starts_with("SIP/2.0/TLS 192.0.2.1:5061;"));
    rig.endpoint.connection_lost(rig.now, peer("192.0.2.9:5061", Transport::Tcp));
    rig.drain();
    assert!(rig.events.is_empty(), "another one");
    rig.endpoint.connection_lost(rig.now, rig.peer);
    rig.drain();
    assert_eq!(rig.events.pop_front(), Some(Event::Ended { call, cause: EndCause::Failed }));
    rig.pass(Duration::from_secs(40));
    assert_eq!(rig.endpoint.n_calls(), 0);
    let (call, tag) = rig.connected("");
    rig.endpoint.connection_lost(rig.now, rig.peer);
    rig.drain();
    assert!(rig.events.is_empty());
    rig.receive(&request("BYE", 2, &tag, "", ""));
    assert_eq!(rig.events.pop_front(), Some(Event::Ended { call, cause: EndCause::Bye }));
}

#[test]
fn a_registration_by_tls_is_made_again_where_its_connection_is_lost() {
    let mut rig = Rig::new(vec![registered_by(Transport::Tls)]);
    rig.pass(Duration::ZERO);
    let address = "192.0.2.9:5061".parse().unwrap();
    rig.peer = Peer { transport: Transport::Tls, address };
    rig.endpoint.resolved(rig.now, TrunkId(0), &[address]);
    rig.drain();
    let (to, register) = rig.sent.pop_back().unwrap();
    assert_eq!((to, register.get("contact")), (rig.peer, Some("<sip:4711@192.0.2.1:5061;transport=tls>")));
    rig.pass(Duration::from_secs(20));
    assert!(rig.sent.is_empty(), "it is not sent again");
    let accepted = register.answer(200, "OK", Some("r")).write();
    rig.receive(std::str::from_utf8(&accepted).unwrap());
    rig.events.clear();
    rig.endpoint.connection_lost(rig.now, rig.peer);
    rig.drain();
    assert_eq!(rig.events.pop_front(), Some(Event::Registered { registrar: TrunkId(0), result: Err(0) }));
    rig.pass(Duration::from_secs(31));
    assert_eq!(rig.resolves, 2);
}

#[test]
fn where_another_connection_is_open_a_call_rings_on_and_a_registration_begins_again_by_it() {
    let mut rig = Rig::new(vec![registered_by(Transport::Tls)]);
    rig.pass(Duration::ZERO);
    let address = "192.0.2.9:5061".parse().unwrap();
    rig.peer = Peer { transport: Transport::Tls, address };
    rig.endpoint.resolved(rig.now, TrunkId(0), &[address]);
    rig.drain();
    let register = rig.last();
    let accepted = register.answer(200, "OK", Some("r")).write();
    rig.receive(std::str::from_utf8(&accepted).unwrap());
    rig.events.clear();
    let (call, invite) = rig.calling();
    rig.endpoint.connection_replaced(rig.now, rig.peer);
    rig.drain();
    assert!(rig.events.is_empty(), "nothing fails");
    let again = rig.last();
    assert_eq!(again.sequence(), Some((2, Method::Register)));
    let accepted = again.answer(200, "OK", Some("r")).write();
    rig.receive(std::str::from_utf8(&accepted).unwrap());
    assert!(matches!(rig.events.pop_front(), Some(Event::Registered { result: Ok(_), .. })));
    let ringing = invite.answer(180, "Ringing", Some("far")).write();
    rig.receive(std::str::from_utf8(&ringing).unwrap());
    assert_eq!(rig.events.pop_front(), Some(Event::Ringing { call }));
    rig.sent.clear();
    rig.endpoint.connection_replaced(rig.now, peer("192.0.2.9:5061", Transport::Tcp));
    rig.drain();
    assert!(rig.sent.is_empty(), "another one");
}

#[test]
fn a_trunk_is_registered_by_digest_and_refreshed_and_its_calls_are_accepted() {
    let mut rig = Rig::new(vec![registered_trunk()]);
    rig.pass(Duration::ZERO);
    assert_eq!(rig.resolves, 1);
    rig.receive(&request("INVITE", 1, "", "", SDP));
    assert_eq!(rig.last().status(), Some(403), "nothing is known of the registrar yet");
    rig.events.clear();
    rig.endpoint.resolved(rig.now, TrunkId(0), &["192.0.2.9:5062".parse().unwrap()]);
    rig.drain();
    let first = rig.last();
    let mut challenge = first.answer(401, "Unauthorized", Some("r"));
    challenge.add("www-authenticate", "Digest realm=\"x\", nonce=\"n\", algorithm=SHA-512, qop=\"auth\"");
    challenge.add("www-authenticate", "Digest realm=\"x\", nonce=\"n\", algorithm=MD5, qop=\"auth,auth-int\"");
    let text = challenge.write();
    rig.receive(std::str::from_utf8(&text).unwrap());
    let second = rig.last();
    assert_eq!(second.sequence(), Some((2, Method::Register)));
    assert!(second.get("authorization").unwrap().contains("username=\"ann\""));
    let mut accepted = second.answer(200, "OK", Some("r"));
    accepted.add("contact", "<sip:4711@192.0.2.1:5060>;expires=100");
    rig.receive(std::str::from_utf8(&accepted.write()).unwrap());
    let granted = Duration::from_secs(100);
    assert_eq!(rig.events.pop_front(), Some(Event::Registered { registrar: TrunkId(0), result: Ok(granted) }));
    rig.receive(&request("INVITE", 1, "", "", SDP));
    assert_eq!(rig.incoming().trunk, TrunkId(0), "the registrar's address may call");
    rig.pass(Duration::from_secs(79));
    assert_eq!(rig.resolves, 1);
    rig.pass(Duration::from_secs(2));
    assert_eq!(rig.resolves, 2, "a refresh begins with a lookup");
}

#[test]
fn a_registration_lasts_as_long_as_its_own_contact() {
    let other = "<sip:4711@192.0.2.7:5060>;expires=3000";
    for (contacts, seconds) in [
        (format!("{other}, <sip:4711@192.0.2.1>;expires=100"), 100),
        (format!("{other}, <sip:4711@192.0.2.1:5060;ob>"), 200),
        // The registrar has another address in the place of ours.
        (format!("{other}, <sip:4711@203.0.113.4:1024>;expires=90"), 90),
    ] {
        let mut rig = Rig::new(vec![registered_trunk()]);
        rig.pass(Duration::ZERO);
        rig.endpoint.resolved(rig.now, TrunkId(0), &["192.0.2.9:5062".parse().unwrap()]);
        rig.drain();
        let mut accepted = rig.last().answer(200, "OK", Some("r"));
        accepted.add("contact", contacts.as_str());
        accepted.add("expires", "200");
        rig.receive(std::str::from_utf8(&accepted.write()).unwrap());
        let granted = Duration::from_secs(seconds);
        let registered = Event::Registered { registrar: TrunkId(0), result: Ok(granted) };
        assert_eq!(rig.events.pop_front(), Some(registered), "{contacts}");
    }
}

#[test]
fn a_registration_that_fails_is_tried_again_later_and_later() {
    let mut rig = Rig::new(vec![registered_trunk()]);
    rig.pass(Duration::ZERO);
    let mut attempts = Vec::new();
    let began = rig.now;
    for _ in 0..9 {
        let before = rig.resolves;
        rig.endpoint.resolved(rig.now, TrunkId(0), &[]);
        rig.drain();
        while rig.resolves == before {
            rig.pass(Duration::from_secs(1));
        }
        attempts.push((rig.now - began).as_secs());
    }
    let pauses: Vec<_> =
        std::iter::once(attempts[0]).chain(attempts.windows(2).map(|pair| pair[1] - pair[0])).collect();
    assert_eq!(pauses, [30, 60, 120, 240, 480, 960, 1_800, 1_800, 1_800]);
    // A registrar that says nothing.
    rig.endpoint.resolved(rig.now, TrunkId(0), &["192.0.2.9:5062".parse().unwrap()]);
    rig.events.clear();
    rig.pass(Duration::from_secs(33));
    assert_eq!(rig.events.pop_front(), Some(Event::Registered { registrar: TrunkId(0), result: Err(0) }));
    // One that asks for a password again and again.
    rig.pass(Duration::from_secs(1_800));
    rig.endpoint.resolved(rig.now, TrunkId(0), &["192.0.2.9:5062".parse().unwrap()]);
    rig.drain();
    rig.events.clear();
    for _ in 0..4 {
        let Some((_, register)) = rig.sent.pop_back() else { break };
        rig.sent.clear();
        let mut challenge = register.answer(401, "Unauthorized", Some("r"));
        challenge.add("www-authenticate", "Digest realm=\"x\", nonce=\"n\", stale=true");
        rig.receive(std::str::from_utf8(&challenge.write()).unwrap());
    }
    assert_eq!(rig.events.pop_front(), Some(Event::Registered { registrar: TrunkId(0), result: Err(401) }));
}

#[test]
fn a_stop_ends_calls_and_registrations() {
    let mut rig = Rig::open();
    rig.connected("");
    rig.endpoint.shut_down(rig.now);
    rig.drain();
    assert_eq!(rig.last().method(), Some(Method::Bye));
}

mod arbitrary {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Requests in any order, with any headers replaced, and time that passes.
        #[test]
        fn no_order_of_messages_panics_or_leaves_a_call_for_ever(
            steps in proptest::collection::vec(
                (0usize..9, 1u32..5, any::<bool>(), "[ -~]{0,20}", 0usize..8, 0u64..40),
                1..24,
            ),
        ) {
            let methods = ["INVITE", "ACK", "BYE", "CANCEL", "UPDATE", "INFO", "OPTIONS", "REFER", "NOTIFY"];
            let names = ["X", "Contact", "Session-Expires", "Require", "Content-Type", "Via", "Allow", "Authorization"];
            let mut rig = Rig::open();
            let mut tag = String::new();
            for (method, number, answers, value, name, seconds) in steps {
                let extra = format!("{}: {value}\r\n", names[name]);
                rig.receive(&request(methods[method], number, &tag, &extra, if answers { SDP } else { "" }));
                let found = rig.sent.iter().find_map(|(_, message)| Some(message.to()?.tag()?.to_owned()));
                tag = found.unwrap_or(tag);
                rig.sent.clear();
                while let Some(event) = rig.events.pop_front() {
                    match event {
                        Event::Incoming(call) if answers => rig.endpoint.accept(rig.now, call.call, SDP),
                        Event::Incoming(call) => rig.endpoint.refuse(rig.now, call.call, 486, "Busy Here", None),
                        Event::Offer { call, .. } => {
                            let answer = if answers { Ok(SDP) } else { Err(488) };
                            rig.endpoint.answer_offer(rig.now, call, answer);
                        }
                        _ => {}
                    }
                }
                rig.pass(Duration::from_secs(seconds));
            }
            rig.endpoint.shut_down(rig.now);
            rig.pass(Duration::from_secs(300));
            prop_assert_eq!(rig.endpoint.n_calls(), 0);
            prop_assert!(rig.endpoint.by_dialog.is_empty() && rig.endpoint.by_invite.is_empty());
            prop_assert!(rig.endpoint.by_branch.is_empty() && rig.endpoint.answered.is_empty());
        }
    }
}

/// A PRACK of the peer.
fn prack(number: u32, tag: &str, acknowledged: &str) -> String {
    request("PRACK", number, tag, &format!("RAck: {acknowledged}\r\n"), "")
}

#[test]
fn ringing_is_sent_again_until_it_is_acknowledged_where_the_peer_requires_that() {
    let mut rig = Rig::open();
    rig.receive(&request("INVITE", 1, "", "Require: 100rel\r\n", SDP));
    let call = rig.incoming().call;
    rig.sent.clear();
    rig.endpoint.ring(rig.now, call);
    rig.endpoint.ring(rig.now, call);
    rig.drain();
    assert_eq!(rig.sent.len(), 1, "the second one waits for the first");
    let ringing = rig.last();
    assert_eq!((ringing.status(), ringing.get("require"), ringing.get("rseq")), (Some(180), Some("100rel"), Some("1")));
    let tag = ringing.to().unwrap().tag().unwrap().to_owned();
    rig.pass(Duration::from_millis(3_600));
    assert_eq!(rig.statuses(), [180; 3], "after 0.5, 1.5 and 3.5 s");
    for (number, wrong) in
        ["2 1 INVITE", "1 2 INVITE", "1 1 BYE", "1 1", "1 1 INVITE x", "", "-1 1 INVITE"].iter().enumerate()
    {
        rig.receive(&prack(2 + number as u32, &tag, wrong));
        assert_eq!(rig.statuses(), [481], "{wrong:?}");
    }
    rig.receive(&prack(20, &tag, "1 1 INVITE"));
    rig.receive(&prack(20, &tag, "1 1 INVITE"));
    assert_eq!(rig.statuses(), [200, 200]);
    rig.pass(Duration::from_secs(60));
    assert_eq!(rig.statuses(), [0u16; 0], "it is not sent again");
    rig.endpoint.accept(rig.now, call, SDP);
    rig.drain();
    assert_eq!(rig.statuses(), [200]);
    rig.receive(&request("ACK", 1, &tag, "", ""));
    assert_eq!(rig.events.pop_front(), Some(Event::Connected { call, answer: None }));
}

#[test]
fn ringing_that_is_never_acknowledged_ends_the_call() {
    let mut rig = Rig::open();
    rig.receive(&request("INVITE", 1, "", "Require: 100rel\r\n", SDP));
    let call = rig.incoming().call;
    rig.endpoint.ring(rig.now, call);
    rig.drain();
    rig.sent.clear();
    rig.pass(Duration::from_millis(32_100));
    assert_eq!(rig.statuses(), [180, 180, 180, 180, 180, 180, 504], "after 0.5 to 31.5 s, and given up after 32");
    assert_eq!(rig.events.pop_front(), Some(Event::Ended { call, cause: EndCause::NoAck }));
    rig.pass(Duration::from_secs(70));
    assert_eq!((rig.endpoint.n_calls(), rig.endpoint.next_deadline()), (0, None));
}

#[test]
fn a_peer_that_requires_acknowledgements_is_answered_without_ringing_and_not_told_of_it_without_an_offer() {
    let mut rig = Rig::open();
    rig.receive(&request("INVITE", 1, "", "Require: 100rel\r\n", ""));
    let call = rig.incoming().call;
    rig.endpoint.ring(rig.now, call);
    rig.endpoint.accept(rig.now, call, SDP);
    rig.drain();
    let tag = rig.sent.back().unwrap().1.to().unwrap().tag().unwrap().to_owned();
    assert_eq!(rig.statuses(), [100, 200]);
    rig.receive(&prack(2, &tag, "1 1 INVITE"));
    assert_eq!(rig.statuses(), [481], "nothing was to be acknowledged");

    // One that is on its way when the call is answered.
    let mut rig = Rig::open();
    rig.receive(&request("INVITE", 1, "", "Require: 100rel\r\n", SDP));
    let call = rig.incoming().call;
    rig.endpoint.ring(rig.now, call);
    rig.endpoint.accept(rig.now, call, SDP);
    rig.drain();
    let tag = rig.sent.back().unwrap().1.to().unwrap().tag().unwrap().to_owned();
    assert_eq!(rig.statuses(), [100, 180, 200]);
    rig.receive(&prack(2, &tag, "1 1 INVITE"));
    assert_eq!(rig.statuses(), [200]);
    rig.pass(Duration::from_millis(600));
    assert_eq!(rig.statuses(), [200], "the answer waits for its own acknowledgement");
    rig.receive(&request("PRACK", 3, "", "RAck: 1 1 INVITE\r\n", ""));
    assert_eq!(rig.statuses(), [481]);
}
