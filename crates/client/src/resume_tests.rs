//! Sessions that are resumed, over real sockets.

use super::*;
use crate::scripted::{Hub, Peer};
use crate::{AudioMode, Connection, ReceivedMessage, connect};
use antiphon_protocol::frame::Frame;
use serde_json::{Value, json};
use tokio::time::sleep;

async fn open(hub: &Hub) -> (Connection, Peer) {
    let opening = async {
        let mut connection = connect(&hub.options).await.unwrap();
        for _ in 0..2 {
            connection.receiver.next().await.unwrap();
        }
        connection
    };
    let accepting = async {
        let mut peer = hub.accept().await;
        peer.begin(30).await;
        peer
    };
    tokio::join!(opening, accepting)
}

async fn say(connection: &mut Connection, ids: std::ops::RangeInclusive<u64>) {
    for id in ids {
        connection.sender.event(&json!({"type": "x", "id": id})).await.unwrap();
    }
}

fn ids(messages: &[Message]) -> Vec<u64> {
    let id = |message: &Message| serde_json::from_str::<Value>(message.to_text().unwrap()).unwrap()["id"].as_u64();
    messages.iter().map(|message| id(message).expect("an id")).collect()
}

async fn resumed(connection: &mut Connection) -> Resumption {
    match connection.receiver.next().await.unwrap() {
        ReceivedMessage::Resumed(resumed) => resumed,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_session_that_moves_continues_without_loss() {
    let hub = Hub::start(AudioMode::Pcm16).await;
    let (mut connection, mut peer) = open(&hub).await;
    let sending = async {
        for _ in 0..20 {
            connection.sender.audio(&[7; 480]).await.unwrap();
        }
        resumed(&mut connection).await
    };
    let script = async {
        let before = peer.take_n(5).await;
        // Five frames arrived, the rest is on its way when the session moves.
        peer.close(1012, "the session moves to another hub").await;
        let mut peer = hub.accept().await;
        assert_eq!(peer.named, Some(2));
        peer.resumed(2, 5).await;
        let after = peer.take_n(15).await;
        [before, after].concat()
    };
    let (resumed, frames) = tokio::join!(sending, script);
    assert_eq!((resumed.back_to, resumed.n_attempts, resumed.n_dropped), (None, 1, 0));
    for (number, frame) in frames.into_iter().enumerate() {
        let frame = Frame::parse(&frame.into_data()).unwrap();
        assert_eq!((frame.sequence as usize, frame.offset.0 as usize), (number, number * 480));
    }
}

#[tokio::test]
async fn what_is_sent_while_the_connection_is_away_waits_for_it() {
    let hub = Hub::start(AudioMode::Ga).await;
    let (mut connection, peer) = open(&hub).await;
    say(&mut connection, 1..=3).await;
    drop(peer);
    // The loss is noticed, then no hub is there.
    let noticed = tokio::time::timeout(Duration::from_millis(100), connection.receiver.next()).await;
    assert!(noticed.is_err() && connection.receiver.is_away());
    say(&mut connection, 4..=500).await;
    let script = async {
        hub.drop_one().await;
        hub.refuse("503 Service Unavailable").await;
        hub.refuse("502 Bad Gateway").await;
        let mut peer = hub.accept().await;
        peer.resumed(2, 1).await;
        (ids(&peer.take_n(499).await), peer)
    };
    let (resumed, (sent, mut peer)) = tokio::join!(resumed(&mut connection), script);
    assert_eq!(sent, (2..=500).collect::<Vec<_>>());
    assert!(resumed.n_attempts == 4 && resumed.gap >= Duration::from_millis(100), "{resumed:?}");
    assert!(!connection.receiver.is_away());
    say(&mut connection, 501..=501).await;
    assert_eq!(ids(&[peer.take().await]), [501]);
}

#[tokio::test]
async fn going_back_is_told_and_only_what_counts_is_sent_again() {
    let hub = Hub::start(AudioMode::Pcm16).await;
    let (mut connection, mut peer) = open(&hub).await;
    let played = json!({"type": "output_audio_buffer.played", "item_id": "a", "audio_end_ms": 20});
    say(&mut connection, 1..=2).await;
    peer.frame(0, &[1; 480]).await;
    peer.checkpoint(2).await;
    for expect in [3, 4] {
        connection.receiver.next().await.unwrap();
        assert_eq!(connection.receiver.n_received(), expect);
    }
    peer.frame(1, &[2; 480]).await;
    peer.frame(2, &[3; 480]).await;
    connection.receiver.next().await.unwrap();
    connection.receiver.next().await.unwrap();
    connection.sender.event(&played).await.unwrap();
    say(&mut connection, 4..=4).await;
    drop(peer);
    let script = async {
        let mut peer = hub.accept().await;
        assert_eq!(peer.named, Some(6));
        peer.resumed(4, 2).await;
        let sent = ids(&peer.take_n(1).await);
        peer.frame(1, &[4; 480]).await;
        (sent, peer)
    };
    let (resumed, (sent, mut peer)) = tokio::join!(resumed(&mut connection), script);
    assert_eq!((sent, resumed.back_to), (vec![4], Some(4)));
    let next = connection.receiver.next().await.unwrap();
    assert_eq!(next, ReceivedMessage::Audio { item_id: "a".into(), samples: vec![4; 480] });
    assert_eq!((connection.receiver.n_received(), connection.receiver.n_misplaced_frames()), (5, 0));
    // The count of sent messages is 2 plus what was sent again.
    say(&mut connection, 5..=5).await;
    assert_eq!(ids(&[peer.take().await]), [5]);
    drop(peer);
    let script = async {
        let mut peer = hub.accept().await;
        assert_eq!(peer.named, Some(5));
        peer.resumed(5, 3).await;
        ids(&peer.take_n(1).await)
    };
    let (resumed, sent) = tokio::join!(self::resumed(&mut connection), script);
    assert_eq!((sent, resumed.back_to), (vec![5], None));
}

#[tokio::test]
async fn a_session_that_is_over_is_not_asked_for() {
    for (code, reason) in [
        (1000, ""),
        (1001, "the session continues on another connection"),
        (1008, "the API key of this session has been revoked"),
        (1013, "the server cannot keep up"),
    ] {
        let hub = Hub::start(AudioMode::Ga).await;
        let (mut connection, peer) = open(&hub).await;
        let (error, ()) = tokio::join!(connection.receiver.next(), peer.close(code, reason));
        assert!(matches!(error, Err(ClientError::Closed { code: Some(got), .. }) if got == code), "{error:?}");
        assert!(!hub.is_asked().await, "{code}");
        let sent = connection.sender.event(&json!({"type": "x"})).await;
        assert!(matches!(sent, Err(ClientError::Closed { .. })), "{sent:?}");
    }
}

#[tokio::test]
async fn a_final_refusal_ends_the_attempts() {
    let hub = Hub::start(AudioMode::Ga).await;
    for status in ["401 Unauthorized", "403 Forbidden"] {
        let (mut connection, peer) = open(&hub).await;
        drop(peer);
        let (error, ()) = tokio::join!(connection.receiver.next(), hub.refuse(status));
        assert!(matches!(error, Err(ClientError::Refused { status: 401 | 403, .. })), "{error:?}");
        assert!(!hub.is_asked().await);
    }
    for code in ["session_not_found", "invalid_api_key"] {
        let (mut connection, peer) = open(&hub).await;
        drop(peer);
        let script = async {
            let mut peer = hub.accept().await;
            peer.event(json!({"type": "error", "error": {"code": code, "message": "It is gone."}})).await;
            peer.close(4000, "invalid_request_error").await;
        };
        let (error, ()) = tokio::join!(connection.receiver.next(), script);
        let error = error.unwrap_err();
        assert!(matches!(&error, ClientError::Server { code: Some(got), .. } if got == code), "{error:?}");
        assert!(!hub.is_asked().await);
        assert!(connection.sender.event(&json!({"type": "x"})).await.is_err());
    }
}

#[tokio::test]
async fn attempts_end_with_the_ticket() {
    let hub = Hub::start(AudioMode::Ga).await;
    let script = async {
        let mut peer = hub.accept().await;
        peer.begin(1).await;
        drop(peer);
        let mut n_attempts = 0;
        while hub.refuse_within(Duration::from_secs(3), "503 Service Unavailable").await {
            n_attempts += 1;
        }
        n_attempts
    };
    let client = async {
        let mut connection = connect(&hub.options).await.unwrap();
        loop {
            if let Err(error) = connection.receiver.next().await {
                return error;
            }
        }
    };
    let (error, n_attempts) = tokio::join!(client, script);
    let ClientError::NotResumed { is_reached: true, source, .. } = error else { panic!("{error:?}") };
    assert!(matches!(*source, ClientError::Broken(_) | ClientError::Closed { code: None, .. }), "{source:?}");
    // At 0, 50 to 100, 150 to 300, 350 to 700 and perhaps 750 ms.
    assert!((3..=7).contains(&n_attempts), "{n_attempts}");
}

#[tokio::test]
async fn that_no_hub_could_be_reached_is_said() {
    let hub = Hub::start(AudioMode::Pcm16).await;
    let script = async {
        let mut peer = hub.accept().await;
        peer.begin(1).await;
        peer
    };
    let options = hub.options.clone();
    let (connection, peer) = tokio::join!(connect(&options), script);
    drop((peer, hub));
    let mut connection = connection.unwrap();
    let error = loop {
        if let Err(error) = connection.receiver.next().await {
            break error;
        }
    };
    assert_eq!(error.to_string(), "no hub could be reached for 1 s", "{error:?}");
}

#[tokio::test]
async fn counts_that_cannot_be_end_the_session() {
    let hub = Hub::start(AudioMode::Ga).await;
    let (mut connection, peer) = open(&hub).await;
    drop(peer);
    let script = async {
        let mut peer = hub.accept().await;
        peer.resumed(1, 0).await;
        peer.try_take().await
    };
    let (error, _) = tokio::join!(connection.receiver.next(), script);
    assert!(matches!(error, Err(ClientError::Protocol(_))), "{error:?}");
}

/// A hub that takes, says, stores, moves, fails and loses connections at random.
struct Storm {
    random: u64,
    taken: Vec<u64>,
    n_taken: u64,
    said: Vec<Value>,
    stored: Option<(Vec<u64>, u64, Vec<Value>)>,
    storing: Option<(Vec<u64>, u64, Vec<Value>)>,
}

impl Storm {
    fn below(&mut self, n: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % n
    }

    async fn send_event(&mut self, peer: &mut Peer, event: Value) {
        self.said.push(event.clone());
        peer.event(event).await;
    }

    /// Serves until the client has said `last`, on as many connections as it takes.
    async fn run(&mut self, hub: &Hub, mut peer: Peer, last: u64) -> Peer {
        while self.taken.last() != Some(&last) {
            match self.below(80) {
                0 => drop(peer),
                1 => {
                    let n_taken = self.n_taken;
                    self.send_event(&mut peer, json!({"type": "antiphon.session.checkpoint", "received": n_taken}))
                        .await;
                    self.stored = Some((self.taken.clone(), self.n_taken, self.said.clone()));
                    self.storing = None;
                    peer.close(1012, "the session moves to another hub").await;
                }
                2 => {
                    drop(peer);
                    self.storing = None;
                    if let Some(stored) = self.stored.clone() {
                        (self.taken, self.n_taken, self.said) = stored;
                    }
                }
                3..=20 => {
                    self.send_event(&mut peer, json!({"type": "something"})).await;
                    continue;
                }
                21..=30 => {
                    if let Some(stored) = self.storing.take() {
                        self.stored = Some(stored);
                    }
                    let n_taken = self.n_taken;
                    self.send_event(&mut peer, json!({"type": "antiphon.session.checkpoint", "received": n_taken}))
                        .await;
                    self.storing = Some((self.taken.clone(), self.n_taken, self.said.clone()));
                    continue;
                }
                _ => {
                    if let Some(message) = peer.try_take().await {
                        self.n_taken += 1;
                        let event: Value = serde_json::from_str(message.to_text().unwrap()).unwrap();
                        if event["type"] == "x" {
                            self.taken.push(event["id"].as_u64().unwrap());
                        }
                        continue;
                    }
                }
            }
            peer = hub.accept().await;
            let named = peer.named.expect("it resumes");
            let after = named.min(self.said.len() as u64);
            peer.resumed(after, self.n_taken).await;
            for event in &self.said[after as usize..] {
                peer.event(event.clone()).await;
            }
        }
        peer
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_message_reaches_a_stormy_hub_once_and_in_order() {
    const LAST: u64 = 150;
    for seed in 1..=8 {
        let hub = Hub::start(AudioMode::Ga).await;
        let (connection, peer) = open(&hub).await;
        let Connection { mut sender, mut receiver } = connection;
        let mut storm = Storm {
            random: seed,
            taken: Vec::new(),
            n_taken: 0,
            said: vec![Value::Null; 2],
            stored: None,
            storing: None,
        };
        // A task of its own, so that messages are sent at any moment of an absence.
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async move {
            for id in 1..=LAST {
                sender.event(&json!({"type": "x", "id": id})).await.unwrap();
                if id % 3 == 0 {
                    sender.event(&json!({"type": "response.cancel"})).await.unwrap();
                }
                if id % 10 == 0 {
                    sleep(Duration::from_millis(1)).await;
                }
            }
            sender
        });
        let receiving = async {
            loop {
                receiver.next().await.unwrap();
            }
        };
        let peer = tokio::select! {
            () = receiving => unreachable!(),
            peer = tokio::time::timeout(Duration::from_secs(60), storm.run(&hub, peer, LAST)) => peer,
        };
        drop((
            peer.unwrap_or_else(|_| panic!("seed {seed}: {:?}", storm.taken)),
            tasks.join_next().await.unwrap().unwrap(),
        ));
        assert_eq!(storm.taken, (1..=LAST).collect::<Vec<_>>(), "seed {seed}");
    }
}

#[test]
fn states_are_kept_for_two_checkpoints() {
    let mut checkpoints = Checkpoints::default();
    for number in [3, 8, 12] {
        checkpoints.mark(number, number * 10);
    }
    assert_eq!(checkpoints.clone().back_to(3), None);
    assert_eq!(checkpoints.clone().back_to(12), Some(120));
    assert_eq!(checkpoints.back_to(8), Some(80));
    assert_eq!(checkpoints.back_to(12), None, "it is void");
    assert_eq!(checkpoints.back_to(8), Some(80));
}

#[test]
fn a_confirmation_is_told_from_other_greetings() {
    let text = |text: &str| confirmation(&Message::text(text));
    let confirmed = text(r#"{"type":"antiphon.session.resumed","event_id":"e","after":7,"received":3}"#).unwrap();
    assert_eq!((confirmed.after, confirmed.received), (7, 3));
    for other in [r#"{"type":"session.created"}"#, "{", r#"{"type":"antiphon.session.resumed","after":1}"#] {
        assert!(matches!(text(other), Err(ClientError::Protocol(_))), "{other}");
    }
}
