//! New passwords of trunks, on their way from a reload to the dialogs.
//!
//! [`super::Sip`] makes both ends: the server replaces passwords by [`TrunkPasswords`], and [`super::dialogs`] gives
//! them to its endpoint. Nothing here blocks or logs, and no password is in a `Debug` output.

use antiphon_sip::TrunkId;
use std::collections::{BTreeMap, HashMap};
use tokio::sync::watch;

/// The passwords that were replaced, each the newest of its trunk.
pub(super) type NewPasswords = HashMap<TrunkId, String>;

/// Replaces passwords of trunks while the hub runs.
#[derive(Clone)]
pub(in crate::server) struct TrunkPasswords {
    /// The trunks' names, in the order of their ids.
    names: Vec<String>,
    replaced: watch::Sender<NewPasswords>,
}

impl TrunkPasswords {
    /// Both ends, for trunks of these names.
    pub(super) fn new(names: Vec<String>) -> (Self, watch::Receiver<NewPasswords>) {
        let (replaced, receiver) = watch::channel(NewPasswords::new());
        (Self { names, replaced }, receiver)
    }

    /// Gives the trunks of these names these passwords; the others keep theirs.
    pub(in crate::server) fn replace(&self, passwords: &BTreeMap<String, String>) {
        let of_trunks = passwords.iter().filter_map(|(name, password)| {
            let index = self.names.iter().position(|known| known == name)?;
            Some((TrunkId(index), password.clone()))
        });
        self.replaced.send_modify(|replaced| replaced.extend(of_trunks));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trunk_has_the_newest_of_its_passwords() {
        let (passwords, receiver) = TrunkPasswords::new(vec!["desk".into(), "phones".into()]);
        let replace = |name: &str, password: &str| {
            passwords.replace(&[(name.to_owned(), password.to_owned())].into());
        };
        replace("phones", "one");
        replace("desk", "two");
        replace("phones", "three");
        replace("none", "four");
        let expect: NewPasswords = [(TrunkId(0), "two".to_owned()), (TrunkId(1), "three".to_owned())].into();
        assert_eq!(*receiver.borrow(), expect);
    }
}
