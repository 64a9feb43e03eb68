//! Cuts a request that is larger than its budget although the turns before the last one are omitted: one message, or one result
//! of a tool, can be larger than all there is room for.
//!
//! The largest texts lose their middle, down to the same length, and say so in its place. Where too many messages would be
//! left too short to be understood, the oldest go.

use super::memory::{PER_MESSAGE, tokens};
use antiphon_types::chat::{Image, Message, UserPart, estimated_tokens};
use std::ops::Range;

/// The least that is left of a text that is cut, in bytes, while older messages can go instead.
const LEAST_BYTES: usize = 1_024;

/// Bytes that a token is taken for, as in [`estimated_tokens`].
const BYTES_PER_TOKEN: u64 = 4;

/// Room for the words in the place of what was cut.
const MARKER_BYTES: usize = 64;

/// Makes `messages` fit `room` tokens. Returns how many tokens were left out. The first message stays whole where it is the
/// `has_instructions`.
pub(super) fn fit(messages: &mut Vec<Message>, has_instructions: bool, room: u64) -> u64 {
    let before = cost(messages, has_instructions);
    if before <= room {
        return 0;
    }
    let from = usize::from(has_instructions);
    leave_images_out(&mut messages[from..], room - room / 4);
    let cap = loop {
        let cap = longest(messages, from, room);
        if cap >= LEAST_BYTES {
            break cap;
        }
        let Some(oldest) = oldest(messages, from) else { break cap.max(MARKER_BYTES) };
        messages.drain(oldest);
    };
    messages[from..].iter_mut().for_each(|message| cut(message, cap));
    before.saturating_sub(cost(messages, has_instructions))
}

/// Leaves the oldest images out that do not fit `room` tokens: an image cannot be cut.
fn leave_images_out(messages: &mut [Message], room: u64) {
    let mut total: u64 = messages.iter().map(image_tokens).sum();
    let parts = messages.iter_mut().flat_map(|message| match message {
        Message::UserParts(parts) => &mut parts[..],
        _ => &mut [],
    });
    for part in parts {
        if let UserPart::Image(image) = part
            && total > room
        {
            total -= image.estimated_tokens();
            *part = UserPart::Text(IMAGE_LEFT_OUT.into());
        }
    }
}

/// What the model reads in the place of an image for which there is no room.
const IMAGE_LEFT_OUT: &str = "[An image was left out here.]";

fn image_tokens(message: &Message) -> u64 {
    message.images().map(Image::estimated_tokens).sum()
}

/// Tokens of the conversation.
fn cost(messages: &[Message], has_instructions: bool) -> u64 {
    let of_message = |message: &Message| {
        PER_MESSAGE + image_tokens(message) + lengths(message).iter().map(|n| estimated_tokens(*n)).sum::<u64>()
    };
    messages[usize::from(has_instructions)..].iter().map(of_message).sum()
}

/// Bytes of each text of a message.
fn lengths(message: &Message) -> Vec<usize> {
    match message {
        Message::System(text) | Message::User(text) => vec![text.len()],
        Message::UserParts(parts) => parts.iter().filter_map(UserPart::text).map(str::len).collect(),
        Message::Assistant { text, tool_calls } => {
            let calls = tool_calls.iter().map(|call| call.call_id.len() + call.name.len() + call.arguments.len());
            [text.len()].into_iter().chain(calls).collect()
        }
        Message::Tool { output, call_id } => vec![output.len() + call_id.len()],
    }
}

/// The length in bytes to which the longest texts are cut so that all of them fit.
fn longest(messages: &[Message], from: usize, room: u64) -> usize {
    let mut all: Vec<usize> = messages[from..].iter().flat_map(lengths).collect();
    all.sort_unstable();
    let images: u64 = messages[from..].iter().map(image_tokens).sum();
    let fixed = PER_MESSAGE * messages[from..].len() as u64 + all.len() as u64 + images;
    let mut left = (room.saturating_sub(fixed) * BYTES_PER_TOKEN) as usize;
    for (at, length) in all.iter().enumerate() {
        let share = left / (all.len() - at);
        if *length > share {
            return share;
        }
        left -= length;
    }
    usize::MAX
}

/// The oldest message that may go, with the results of its calls. Instructions stay, and so do the user's last message and what
/// is behind it.
fn oldest(messages: &[Message], from: usize) -> Option<Range<usize>> {
    let last_of_user = messages.iter().rposition(|message| message.user_text().is_some()).unwrap_or(messages.len());
    let may_go = |message: &Message| !matches!(message, Message::System(_));
    let first = (from..messages.len()).find(|at| may_go(&messages[*at]) && *at != last_of_user)?;
    let is_result = |message: &&Message| matches!(message, Message::Tool { .. });
    let n_results = messages[first + 1..].iter().take_while(is_result).count();
    let range = first..first + 1 + n_results;
    // What the model answers: the last message, whatever it is.
    (range.end < messages.len()).then_some(range)
}

fn cut(message: &mut Message, cap: usize) {
    match message {
        Message::System(text) | Message::User(text) | Message::Tool { output: text, .. } => cut_text(text, cap),
        Message::UserParts(parts) => parts.iter_mut().for_each(|part| match part {
            UserPart::Text(text) => cut_text(text, cap),
            UserPart::Image(_) => {}
        }),
        Message::Assistant { text, tool_calls } => {
            cut_text(text, cap);
            // A part of an object is none.
            tool_calls
                .iter_mut()
                .filter(|call| call.arguments.len() > cap)
                .for_each(|call| call.arguments = "{}".into());
        }
    }
}

/// Leaves the beginning and the end of a text.
fn cut_text(text: &mut String, cap: usize) {
    if text.len() <= cap {
        return;
    }
    let room = cap.saturating_sub(MARKER_BYTES);
    let head = text.floor_char_boundary(room * 2 / 3);
    let tail = text.ceil_char_boundary(text.len() - room / 3);
    let left_out = tokens(&text[head..tail]);
    text.replace_range(head..tail, &format!(" [... about {left_out} tokens were left out here ...] "));
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_types::chat::{ImageDetail, ToolCall};

    fn user(n: usize) -> Message {
        Message::User("wörd ".repeat(n / 6))
    }

    #[test]
    fn what_fits_is_as_it_was() {
        let mut messages = vec![Message::System("s".repeat(9_000)), user(300)];
        let as_before = messages.clone();
        assert_eq!(fit(&mut messages, true, 200), 0);
        assert_eq!(messages, as_before);
    }

    #[test]
    fn the_largest_texts_lose_their_middle_and_say_so() {
        let call = ToolCall { call_id: "c".into(), name: "read".into(), arguments: "{}".into() };
        let mut messages = vec![
            Message::System("Be brief.".into()),
            Message::User("What is in it?".into()),
            Message::Assistant { text: String::new(), tool_calls: vec![call] },
            Message::Tool { call_id: "c".into(), output: format!("first {} last", "x".repeat(100_000)) },
        ];
        let left_out = fit(&mut messages, true, 8_000);
        assert!((16_000..18_000).contains(&left_out), "{left_out}");
        assert!(cost(&messages, true) <= 8_000 && cost(&messages, true) > 7_500, "{}", cost(&messages, true));
        assert_eq!(messages[1], Message::User("What is in it?".into()));
        let Message::Tool { output, .. } = &messages[3] else { panic!("the result") };
        assert!(output.starts_with("first x") && output.ends_with("x last") && output.contains("tokens were left out"));
    }

    #[test]
    fn arguments_are_never_cut_in_the_middle() {
        let arguments = format!("{{\"text\":\"{}\"}}", "x".repeat(50_000));
        let call = ToolCall { call_id: "c".into(), name: "write".into(), arguments };
        let mut messages = vec![user(60), Message::Assistant { text: String::new(), tool_calls: vec![call] }];
        assert!(fit(&mut messages, false, 1_000) > 0 && cost(&messages, false) <= 1_000);
        let Message::Assistant { tool_calls, .. } = &messages[1] else { panic!("the call") };
        assert_eq!(tool_calls[0].arguments, "{}");
    }

    #[test]
    fn of_many_messages_the_oldest_go() {
        let mut messages: Vec<Message> = (0..1_000).map(|_| user(1_200)).collect();
        messages.push(Message::User("The question.".into()));
        fit(&mut messages, false, 2_000);
        assert!(cost(&messages, false) <= 2_000);
        assert!(messages.len() > 5, "the latest stay");
        assert_eq!(messages.last(), Some(&Message::User("The question.".into())));
    }

    #[test]
    fn images_that_do_not_fit_are_left_out_oldest_first() {
        let image = |n: usize| UserPart::Image(Image::new(&"x".repeat(n), ImageDetail::High));
        let text = |text: &str| UserPart::Text(text.into());
        let mut messages = vec![Message::UserParts(vec![image(1), text("and"), image(2), image(3), text("Compare.")])];
        assert_eq!(fit(&mut messages, false, 3_000), 0, "the size of their files does not count");
        assert!(fit(&mut messages, false, 2_200) > 700);
        assert!(cost(&messages, false) <= 2_200);
        let left = [text(IMAGE_LEFT_OUT), text("and"), image(2), image(3), text("Compare.")];
        assert_eq!(messages, [Message::UserParts(left.into())]);
        fit(&mut messages, false, 100);
        assert_eq!((messages[0].images().count(), cost(&messages, false) <= 100), (0, true));
    }

    #[test]
    fn no_room_leaves_the_question() {
        let mut messages = vec![user(60_000)];
        fit(&mut messages, false, 0);
        assert!(cost(&messages, false) < 60, "{}", cost(&messages, false));
    }
}
