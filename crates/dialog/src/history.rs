//! The conversation: its items in order, and what was heard of the spoken ones.

use super::{Item, ItemKind, ItemPosition, ItemStatus, SpokenItem};
use antiphon_types::{ItemId, ResponseId, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

/// The most items of a conversation: an hour of a lively one has about 1500.
const MAX_ITEMS: usize = 4_096;
/// The most text of a conversation in bytes: more than any model reads.
pub(super) const MAX_BYTES: usize = 4 * 1024 * 1024;
/// The longest silence within an answer. What comes later acknowledges nothing of what was said before.
const ANSWER_SILENCE: Duration = Duration::from_secs(1);
/// Speech that is no item, and is kept. Of more, the oldest that was heard is forgotten, else the oldest: its audio is not paced
/// any more, and cannot be stopped.
const MAX_UNLISTED: usize = 32;

/// The items of a conversation.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct History {
    items: Vec<Item>,
    spoken: BTreeMap<ItemId, SpokenItem>,
    /// The last filler: speech that is no item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    filler: Option<ItemId>,
    /// Other speech that is no item, oldest first: of responses beside the conversation, and of items that were deleted.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    unlisted: VecDeque<ItemId>,
    /// The model reads from this item on; see `memory`.
    pub(super) told_from: Option<ItemId>,
}

impl History {
    /// The items in order.
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// One item.
    pub fn item(&self, id: &ItemId) -> Option<&Item> {
        self.items.iter().find(|item| item.id == *id)
    }

    pub(super) fn item_mut(&mut self, id: &ItemId) -> Option<&mut Item> {
        self.items.iter_mut().find(|item| item.id == *id)
    }

    /// The speech of a reply item.
    pub fn spoken(&self, id: &ItemId) -> Option<&SpokenItem> {
        self.spoken.get(id)
    }

    /// The spoken items of a response whose speech was cut.
    pub fn cut_items(&self, response: &ResponseId) -> Vec<ItemId> {
        let cut = self.spoken.iter().filter(|(_, spoken)| spoken.response() == response && spoken.is_cut());
        cut.map(|(id, _)| id.clone()).collect()
    }

    pub(super) fn spoken_mut(&mut self, id: &ItemId) -> Option<&mut SpokenItem> {
        self.spoken.get_mut(id)
    }

    pub(super) fn speak(&mut self, id: ItemId, spoken: SpokenItem) {
        self.spoken.insert(id, spoken);
    }

    /// Speech that is no item.
    pub(super) fn speak_unlisted(&mut self, id: ItemId, spoken: SpokenItem, now: Timestamp) {
        self.spoken.insert(id.clone(), spoken);
        self.keep_unlisted(id, now);
    }

    /// An item gets the id of speech that is no item: it is that item's as long as it sounds, else it is forgotten.
    pub(super) fn list(&mut self, id: &ItemId, now: Timestamp) {
        let Some(at) = self.unlisted.iter().position(|unlisted| unlisted == id) else { return };
        self.unlisted.remove(at);
        if self.was_heard(id, now) {
            self.spoken.remove(id);
        }
    }

    /// Whether all that was made of it was heard.
    fn was_heard(&self, id: &ItemId, now: Timestamp) -> bool {
        self.spoken.get(id).is_none_or(|spoken| spoken.playhead().n_sent().0 > 0 && !spoken.is_unheard(now))
    }

    fn keep_unlisted(&mut self, id: ItemId, now: Timestamp) {
        self.unlisted.push_back(id);
        if self.unlisted.len() > MAX_UNLISTED {
            let goes = self.unlisted.iter().position(|id| self.was_heard(id, now)).unwrap_or(0);
            if let Some(id) = self.unlisted.remove(goes) {
                self.spoken.remove(&id);
            }
        }
    }

    /// A filler's speech, in the place of the last one's.
    pub(super) fn speak_filler(&mut self, id: ItemId, spoken: SpokenItem) {
        if let Some(last) = self.filler.replace(id.clone()) {
            self.spoken.remove(&last);
        }
        self.spoken.insert(id, spoken);
    }

    /// Whether the speech of this id is a filler.
    pub(super) fn is_filler(&self, id: &ItemId) -> bool {
        self.filler.as_ref() == Some(id)
    }

    /// The filler that was spoken for this response, if it was the last one.
    pub(super) fn filler_of(&self, response: &ResponseId) -> Option<ItemId> {
        self.filler.clone().filter(|id| self.spoken.get(id).is_some_and(|spoken| spoken.response() == response))
    }

    /// Inserts an item and returns the id of the item before it; `Err` when the position does not exist.
    pub(super) fn insert(&mut self, item: Item, place: &ItemPosition) -> Result<Option<ItemId>, ItemId> {
        let at = match place {
            ItemPosition::Last => self.items.len(),
            ItemPosition::First => 0,
            ItemPosition::After(id) => {
                1 + self.items.iter().position(|item| item.id == *id).ok_or_else(|| id.clone())?
            }
        };
        self.items.insert(at, item);
        Ok(self.before(at))
    }

    /// The id of the item before an item.
    pub(super) fn previous(&self, id: &ItemId) -> Option<ItemId> {
        let at = self.items.iter().position(|item| item.id == *id)?;
        self.before(at)
    }

    fn before(&self, at: usize) -> Option<ItemId> {
        at.checked_sub(1).map(|before| self.items[before].id.clone())
    }

    /// Removes an item. Its speech is kept as long as it sounds.
    pub(super) fn remove(&mut self, id: &ItemId, now: Timestamp) -> Option<Item> {
        let at = self.items.iter().position(|item| item.id == *id)?;
        let item = self.items.remove(at);
        self.unlist(&item, now);
        Some(item)
    }

    /// The item was removed.
    fn unlist(&mut self, item: &Item, now: Timestamp) {
        let Some(spoken) = self.spoken.get(&item.id) else { return };
        if item.status == ItemStatus::InProgress || spoken.is_unheard(now) {
            self.keep_unlisted(item.id.clone(), now);
        } else {
            self.spoken.remove(&item.id);
        }
    }

    /// Whether the client was given a call of this id to answer.
    pub(super) fn has_call(&self, id: &str) -> bool {
        self.items.iter().any(|item| matches!(&item.kind, ItemKind::FunctionCall { call_id, .. } if call_id == id))
    }

    /// Whether any call has this id.
    pub(super) fn has_call_id(&self, id: &str) -> bool {
        let is_remote = |item: &Item| match &item.kind {
            ItemKind::RemoteCall { call, .. } | ItemKind::RemoteRequest(call) => call.call_id == id,
            _ => false,
        };
        self.has_call(id) || self.items.iter().any(is_remote)
    }

    /// Removes the oldest items until the limits hold, and returns their ids. Items in progress stay, and so does the last
    /// item, unless it is the result of a call that goes. A call and its results are removed and counted together.
    pub(super) fn trim(&mut self, now: Timestamp) -> Vec<ItemId> {
        let mut n_items = self.items.len();
        let mut n_bytes: usize = self.items.iter().map(Item::n_bytes).sum();
        if n_items <= MAX_ITEMS && n_bytes <= MAX_BYTES {
            return Vec::new();
        }
        let mut results: HashMap<&str, Vec<usize>> = HashMap::new();
        for (at, item) in self.items.iter().enumerate() {
            if let ItemKind::FunctionOutput { call_id, .. } = &item.kind {
                results.entry(call_id.as_str()).or_default().push(at);
            }
        }
        let newest = n_items.saturating_sub(1);
        let mut is_excess = vec![false; n_items];
        for (at, item) in self.items.iter().enumerate().take(newest) {
            if n_items <= MAX_ITEMS && n_bytes <= MAX_BYTES {
                break;
            }
            if item.status == ItemStatus::InProgress {
                continue;
            }
            let of_call = item.call().and_then(|call| results.get(call));
            for goes in of_call.into_iter().flatten().copied().chain([at]) {
                if !is_excess[goes] {
                    is_excess[goes] = true;
                    n_items -= 1;
                    n_bytes -= self.items[goes].n_bytes();
                }
            }
        }
        let mut is_excess = is_excess.into_iter();
        let dropped: Vec<Item> = self.items.extract_if(.., |_| is_excess.next() == Some(true)).collect();
        dropped.iter().for_each(|item| self.unlist(item, now));
        dropped.into_iter().map(|item| item.id).collect()
    }

    /// Whether the assistant has spoken in the conversation.
    pub(super) fn has_speech(&self) -> bool {
        self.spoken.iter().any(|(id, spoken)| spoken.generated().0 > 0 && !self.unlisted.contains(id))
    }

    /// The speech that the listener has not heard to its end, in order. A filler, which begins in silence, comes first; other
    /// speech that is no item comes where it begins to sound.
    pub(super) fn unheard(&self, now: Timestamp) -> Vec<ItemId> {
        let unheard = |id: &&ItemId| self.spoken.get(id).is_some_and(|spoken| spoken.is_unheard(now));
        let listed = self.filler.iter().chain(self.items.iter().map(|item| &item.id));
        let mut ids: Vec<ItemId> = listed.filter(unheard).cloned().collect();
        let n_listed = ids.len();
        ids.extend(self.unlisted.iter().filter(unheard).cloned());
        if ids.len() > n_listed {
            ids.sort_by_key(|id| {
                let begins = self.spoken[id].playhead().begins_at();
                (begins.is_none(), begins)
            });
        }
        ids
    }

    /// What is spoken in answer to the last message of the user, where its listener has not heard all of it and it has no other
    /// items: a call has a result, which is answered.
    pub(super) fn unheard_answer(&self, now: Timestamp) -> Option<Vec<ItemId>> {
        let asked_at = self.items.iter().rposition(Item::is_users_message)?;
        let answer = &self.items[asked_at + 1..];
        let is_unheard = |item: &Item| self.spoken.get(&item.id).is_some_and(|spoken| spoken.is_unheard(now));
        let is_speech = !answer.is_empty() && answer.iter().all(is_unheard);
        is_speech.then(|| answer.iter().map(|item| item.id.clone()).collect())
    }

    /// Whether the item is here and the user has sent no message behind it.
    pub(super) fn ends_with(&self, id: &ItemId) -> bool {
        let last = self.items.iter().rev().find(|item| item.id == *id || item.is_users_message());
        last.is_some_and(|item| item.id == *id)
    }

    /// When `item` began to sound, or the items before it that answer the same message without a longer silence.
    pub(super) fn answer_began(&self, item: &ItemId) -> Option<Timestamp> {
        let mut began = self.spoken.get(item)?.playhead().begins_at()?;
        let at = self.items.iter().position(|listed| listed.id == *item).unwrap_or(0);
        let earlier = self.items[..at].iter().rev().take_while(|item| !item.is_users_message());
        for spoken in earlier.filter_map(|item| self.spoken.get(&item.id)) {
            match (spoken.playhead().begins_at(), spoken.sounds_until()) {
                (Some(begins), Some(ends)) if ends + ANSWER_SILENCE >= began => began = began.min(begins),
                _ => break,
            }
        }
        Some(began)
    }

    /// The responses that these items belong to, each once, in order.
    pub(super) fn responses_of(&self, items: &[ItemId]) -> Vec<ResponseId> {
        let mut responses: Vec<ResponseId> = Vec::new();
        for response in items.iter().filter_map(|id| Some(self.spoken.get(id)?.response())) {
            if !responses.contains(response) {
                responses.push(response.clone());
            }
        }
        responses
    }

    /// Resumes every playhead, those of items that were cut meanwhile included.
    pub(super) fn resume(&mut self, now: Timestamp) {
        self.spoken.values_mut().for_each(|spoken| spoken.resume(now));
    }

    /// When playback of the last reply ended, or will end.
    pub(super) fn last_heard_at(&self) -> Timestamp {
        self.spoken.values().filter_map(SpokenItem::sounds_until).max().unwrap_or(Timestamp::ZERO)
    }

    /// When playback of all sent audio will have ended.
    pub(super) fn dry_at(&self, now: Timestamp) -> Timestamp {
        let unheard = self.unheard(now);
        let dry = unheard.iter().filter_map(|id| self.spoken.get(id)?.playhead().dry_at(now));
        dry.max().unwrap_or(Timestamp::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Content, Role};
    use antiphon_types::{SampleRate, Samples};

    fn message(text: &str) -> ItemKind {
        ItemKind::Message { role: Role::User, content: vec![Content::InputText(text.into())] }
    }

    fn call() -> ItemKind {
        ItemKind::FunctionCall { call_id: "c".into(), name: "f".into(), arguments: "{}".into() }
    }

    fn result(output: &str) -> ItemKind {
        ItemKind::FunctionOutput { call_id: "c".into(), output: output.into() }
    }

    /// Items with the ids `i0`, `i1` and so on.
    fn history(kinds: impl IntoIterator<Item = ItemKind>) -> History {
        let mut history = History::default();
        for (n, kind) in kinds.into_iter().enumerate() {
            let item = Item { id: format!("i{n}").as_str().into(), status: ItemStatus::Completed, kind };
            history.insert(item, &ItemPosition::Last).unwrap();
        }
        history
    }

    fn trimmed(history: &mut History) -> Vec<String> {
        history.trim(Timestamp::ZERO).iter().map(|id| id.as_str().to_owned()).collect()
    }

    #[test]
    fn the_result_of_a_call_that_goes_is_counted_with_it() {
        let beginning = [call(), message("kept"), result("done")];
        let rest = (0..MAX_ITEMS - 1).map(|_| message("later"));
        let mut by_items = history(beginning.into_iter().chain(rest));
        assert_eq!(trimmed(&mut by_items), ["i0", "i2"]);
        assert_eq!(by_items.items().len(), MAX_ITEMS);

        let half = "x".repeat(MAX_BYTES / 2);
        let mut by_bytes = history([call(), message("kept"), result(&half), message(&half), message("last")]);
        assert_eq!(trimmed(&mut by_bytes), ["i0", "i2"]);
        assert!(trimmed(&mut by_bytes).is_empty());

        // The result is the last item.
        let mut at_end = history([call(), message("kept"), message(&half), result(&half)]);
        assert_eq!(trimmed(&mut at_end), ["i0", "i3"]);
    }

    /// A second of speech, of which nothing was sent.
    fn speech() -> SpokenItem {
        let mut spoken = SpokenItem::new("r".into(), SampleRate::HZ_24000, Timestamp::ZERO);
        spoken.say("Said.");
        spoken.made(Samples(24_000), Samples::ZERO);
        spoken
    }

    #[test]
    fn the_speech_of_a_deleted_item_is_kept_as_long_as_it_sounds() {
        let mut history = history([message("asked")]);
        let id = ItemId::from("i0");
        let mut sent = speech();
        sent.sent(Timestamp::ZERO, Samples(24_000));
        history.speak(id.clone(), sent);
        let begun = Timestamp::from_ms(500);
        let item = history.remove(&id, begun).unwrap();
        assert_eq!(history.unheard(begun), std::slice::from_ref(&id));
        assert!(!history.has_speech());
        // The client adds it again while it sounds, and deletes it later.
        history.list(&id, begun);
        history.insert(item, &ItemPosition::Last).unwrap();
        assert_eq!(history.unheard(begun), std::slice::from_ref(&id));
        assert!(history.has_speech());
        history.remove(&id, Timestamp::from_ms(1_500)).unwrap();
        assert!(history.spoken(&id).is_none());
    }

    #[test]
    fn an_answer_begins_with_its_first_item_unless_it_was_silent_for_longer() {
        for (second_at, began_at) in [(1_500, 0), (8_000, 8_000)] {
            let answer = || ItemKind::Message { role: Role::Assistant, content: Vec::new() };
            let mut history = history([message("asked"), answer(), call(), result("done"), answer()]);
            for (id, at) in [("i1", 0), ("i4", second_at)] {
                let mut sent = speech();
                sent.sent(Timestamp::from_ms(at), Samples(24_000));
                history.speak(id.into(), sent);
            }
            assert_eq!(history.answer_began(&"i4".into()), Some(Timestamp::from_ms(began_at)));
        }
    }

    #[test]
    fn speech_that_is_no_item_comes_where_it_begins_to_sound_and_the_oldest_is_forgotten() {
        let mut history = history([message("asked"), message("answered")]);
        let mut begun = speech();
        begun.sent(Timestamp::from_ms(500), Samples(480));
        history.speak("i1".into(), begun);
        let mut earlier = speech();
        earlier.sent(Timestamp::from_ms(100), Samples(480));
        history.speak_unlisted("early".into(), earlier, Timestamp::ZERO);
        history.speak_unlisted("late".into(), speech(), Timestamp::ZERO);
        let unheard = |history: &History| history.unheard(Timestamp::from_ms(500));
        assert_eq!(unheard(&history), ["early", "i1", "late"].map(ItemId::from));
        for n in 0..MAX_UNLISTED - 1 {
            history.speak_unlisted(format!("u{n}").into(), speech(), Timestamp::ZERO);
        }
        assert!(history.spoken(&"early".into()).is_none() && history.spoken(&"late".into()).is_some());
        assert_eq!(unheard(&history).len(), 1 + MAX_UNLISTED);
    }

    #[test]
    fn a_result_ahead_of_its_call_is_counted_once() {
        // 10 bytes too many: the result has 5, the call 4.
        let large = "x".repeat(MAX_BYTES - 131);
        let mut history = history([result("done"), call(), message("goes"), message(&large)]);
        assert_eq!(trimmed(&mut history), ["i0", "i1", "i2"]);
    }
}
