//! The outbox against a model of a hub that stores checkpoints, fails and is replaced.

use super::*;
use proptest::prelude::*;
use serde_json::json;

fn text(id: u64) -> Message {
    Message::text(id.to_string())
}

fn to_write(outbox: &mut Outbox) -> Vec<String> {
    std::iter::from_fn(|| outbox.next_to_write()).map(|message| message.to_text().unwrap().to_owned()).collect()
}

#[test]
fn an_exact_continuation_sends_the_rest_unchanged() {
    let mut outbox = Outbox::default();
    for id in 1..=5 {
        outbox.push(text(id), id == 4);
    }
    outbox.all_written();
    assert_eq!(outbox.resume(9, 9, 2), Ok(Continuation { back_to: None, n_dropped: 0 }));
    assert_eq!((to_write(&mut outbox), outbox.n_sent()), (vec!["3".into(), "4".into(), "5".into()], 5));
    outbox.push(text(6), false);
    assert_eq!(to_write(&mut outbox), ["6"]);
    assert_eq!(outbox.resume(9, 9, 6), Ok(Continuation { back_to: None, n_dropped: 0 }));
    assert_eq!(to_write(&mut outbox).len(), 0);
}

#[test]
fn going_back_leaves_out_what_is_about_void_output_and_counts_again() {
    let mut outbox = Outbox::default();
    outbox.checkpoint(3, 0, None);
    for id in 1..=3 {
        outbox.push(text(id), false);
    }
    outbox.checkpoint(10, 2, Some(7));
    for id in 4..=7 {
        outbox.push(text(id), id % 2 == 0);
    }
    assert_eq!(outbox.resume(15, 10, 2), Ok(Continuation { back_to: Some((10, Some(7))), n_dropped: 0 }));
    assert_eq!((to_write(&mut outbox), outbox.n_sent()), (vec!["3".into(), "5".into(), "7".into()], 5));
    // The replacement fails as well, before it stored anything.
    outbox.push(text(8), false);
    assert_eq!(outbox.resume(12, 10, 2), Ok(Continuation { back_to: Some((10, Some(7))), n_dropped: 0 }));
    assert_eq!(to_write(&mut outbox), ["3", "5", "7", "8"]);
    assert_eq!(outbox.resume(12, 3, 0), Err(Contradiction::After { after: 3 }), "the later one is stored");
}

#[test]
fn a_session_may_go_back_after_it_moved() {
    let mut outbox = Outbox::default();
    outbox.checkpoint(3, 0, None);
    for id in 1..=3 {
        outbox.push(text(id), id == 2);
    }
    outbox.all_written();
    assert_eq!(outbox.resume(5, 5, 3), Ok(Continuation { back_to: None, n_dropped: 0 }));
    assert_eq!(to_write(&mut outbox).len(), 0);
    assert_eq!(outbox.resume(6, 3, 0), Ok(Continuation { back_to: Some((3, None)), n_dropped: 0 }));
    assert_eq!(to_write(&mut outbox), ["1", "3"]);
}

#[test]
fn what_two_checkpoints_include_is_not_kept() {
    let mut outbox = Outbox::default();
    for id in 1..=10 {
        outbox.push(text(id), false);
    }
    outbox.checkpoint(1, 4, None);
    outbox.checkpoint(2, 6, None);
    outbox.checkpoint(3, 9, None);
    assert_eq!((outbox.kept.len(), outbox.n_before, outbox.n_sent()), (4, 6, 10));
    assert_eq!(outbox.resume(5, 1, 4), Err(Contradiction::After { after: 1 }));
    assert_eq!(outbox.resume(5, 2, 6), Ok(Continuation { back_to: Some((2, None)), n_dropped: 0 }));
    assert_eq!(to_write(&mut outbox), ["7", "8", "9", "10"]);
}

#[test]
fn counts_that_cannot_be_are_refused_and_change_nothing() {
    let mut outbox = Outbox::default();
    outbox.push(text(1), false);
    outbox.checkpoint(4, 0, None);
    assert_eq!(outbox.resume(6, 7, 1), Err(Contradiction::After { after: 7 }));
    assert_eq!(outbox.resume(6, 5, 1), Err(Contradiction::After { after: 5 }));
    assert_eq!(outbox.resume(6, 6, 2), Err(Contradiction::Received { received: 2, n_sent: 1 }));
    assert_eq!(outbox.resume(6, 6, 0), Ok(Continuation { back_to: None, n_dropped: 0 }));
    assert_eq!(to_write(&mut outbox), ["1"]);
}

#[test]
fn memory_is_bounded_and_a_loss_is_counted() {
    let mut outbox = Outbox::default();
    let large = "x".repeat(1 << 20);
    for _ in 0..10 {
        outbox.push(Message::text(large.clone()), false);
    }
    assert_eq!((outbox.kept.len(), outbox.n_kept_bytes, outbox.n_sent()), (8, MAX_KEPT_BYTES, 10));
    assert_eq!(outbox.resume(0, 0, 1), Ok(Continuation { back_to: None, n_dropped: 1 }));
    assert_eq!((to_write(&mut outbox).len(), outbox.n_sent()), (8, 9));
}

#[test]
fn reports_cuts_and_results_are_about_output() {
    let item = |kind: &str| json!({"type": "conversation.item.create", "item": {"type": kind}});
    let of = |kind: &str| json!({ "type": kind });
    for kind in ["output_audio_buffer.played", "output_audio_buffer.clear", "antiphon.clock.ping", "response.cancel"] {
        assert!(is_about_output(&of(kind)), "{kind}");
    }
    for kind in ["conversation.item.truncate", "conversation.item.delete"] {
        assert!(is_about_output(&of(kind)), "{kind}");
    }
    assert!(is_about_output(&item("function_call_output")) && is_about_output(&item("mcp_approval_response")));
    assert!(!is_about_output(&item("message")) && !is_about_output(&of("response.create")));
    assert!(!is_about_output(&of("session.update")) && !is_about_output(&of("input_audio_buffer.append")));
}

/// A session as its hub holds it.
#[derive(Clone, Default)]
struct Session {
    /// The client's messages that it includes.
    taken: Vec<u64>,
    n_taken: u64,
    /// Its own messages; `true`: a checkpoint.
    sent: Vec<(u64, Option<u64>)>,
}

/// One client and one hub, and what is on its way between them.
#[derive(Default)]
struct Model {
    outbox: Outbox,
    /// What the client received, by the identities of messages.
    received: Vec<u64>,
    to_hub: VecDeque<u64>,
    to_client: VecDeque<(u64, Option<u64>)>,
    session: Session,
    stored: Option<Session>,
    /// A checkpoint that is being stored: it is stored, or lost with its hub.
    storing: Option<Session>,
    next_id: u64,
    said: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Say {
        about_output: bool,
    },
    HubTakes(usize),
    HubSays,
    ClientTakes(usize),
    Checkpoint,
    Stored,
    /// The connection breaks; the hub lives.
    Break,
    /// The hub fails; another one continues from the last stored checkpoint.
    Fail,
    /// The session is stored as it is and continues on another hub.
    HandOver,
}

impl Model {
    fn run(&mut self, step: Step) {
        match step {
            Step::Say { about_output } => {
                self.next_id += 1;
                self.outbox.push(text(self.next_id), about_output);
                self.outbox.all_written();
                self.to_hub.push_back(self.next_id);
                if !about_output {
                    self.said.push(self.next_id);
                }
            }
            Step::HubTakes(n) => {
                for id in self.to_hub.drain(..n.min(self.to_hub.len())) {
                    self.session.taken.push(id);
                    self.session.n_taken += 1;
                }
            }
            Step::HubSays => self.hub_says(None),
            Step::ClientTakes(n) => {
                for (id, checkpoint) in self.to_client.drain(..n.min(self.to_client.len())) {
                    self.received.push(id);
                    if let Some(n_included) = checkpoint {
                        self.outbox.checkpoint(self.received.len() as u64, n_included, None);
                    }
                }
            }
            Step::Checkpoint => {
                // One is announced only once the one before is stored.
                if self.storing.is_none() {
                    self.hub_says(Some(self.session.n_taken));
                    self.storing = Some(self.session.clone());
                }
            }
            Step::Stored => {
                if let Some(storing) = self.storing.take() {
                    self.stored = Some(storing);
                }
            }
            Step::Break => self.connect(),
            Step::HandOver => {
                // Its last message is a checkpoint: a later hub that fails goes back to it.
                self.hub_says(Some(self.session.n_taken));
                self.storing = None;
                self.stored = Some(self.session.clone());
                self.connect();
            }
            Step::Fail => {
                let Some(stored) = self.stored.clone() else { return self.connect() };
                self.storing = None;
                self.session = stored;
                self.connect();
            }
        }
    }

    fn hub_says(&mut self, checkpoint: Option<u64>) {
        self.next_id += 1;
        self.session.sent.push((self.next_id, checkpoint));
        self.to_client.push_back((self.next_id, checkpoint));
    }

    /// The old connection and all that is on its way are lost; a new one resumes.
    fn connect(&mut self) {
        self.to_hub.clear();
        self.to_client.clear();
        let named = self.received.len() as u64;
        let n_sent = self.session.sent.len() as u64;
        let after = named.min(n_sent);
        let continuation = self.outbox.resume(named, after, self.session.n_taken).expect("the counts agree");
        assert_eq!(continuation.back_to.is_some(), after < named);
        assert_eq!(continuation.n_dropped, 0);
        self.received.truncate(after as usize);
        self.to_client.extend(&self.session.sent[after as usize..]);
        while let Some(message) = self.outbox.next_to_write() {
            self.to_hub.push_back(message.to_text().unwrap().parse().unwrap());
        }
        assert_eq!(self.outbox.n_sent(), self.session.n_taken + self.to_hub.len() as u64);
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => any::<bool>().prop_map(|about_output| Step::Say { about_output }),
        5 => (1..6_usize).prop_map(Step::HubTakes),
        5 => Just(Step::HubSays),
        5 => (1..6_usize).prop_map(Step::ClientTakes),
        3 => Just(Step::Checkpoint),
        3 => Just(Step::Stored),
        1 => Just(Step::Break),
        1 => Just(Step::Fail),
        1 => Just(Step::HandOver),
    ];
    proptest::collection::vec(step, 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn each_message_that_counts_arrives_once_and_in_order(steps in steps()) {
        let mut model = Model::default();
        for step in steps {
            model.run(step);
        }
        model.run(Step::HubTakes(usize::MAX));
        model.run(Step::ClientTakes(usize::MAX));
        let said = &model.said;
        let counts: Vec<_> = model.session.taken.iter().filter(|id| said.contains(id)).copied().collect();
        prop_assert_eq!(&counts, said);
        prop_assert!(model.session.taken.is_sorted_by(|a, b| a < b));
        let sent: Vec<_> = model.session.sent.iter().map(|(id, _)| *id).collect();
        prop_assert_eq!(&model.received, &sent);
    }
}
