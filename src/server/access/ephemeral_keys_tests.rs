//! Client secrets: lifetime and limits.

use super::*;

const LIFE: Duration = Duration::from_secs(10);

fn store() -> EphemeralKeys {
    EphemeralKeys::new(Dialect::default(), None)
}

fn owner(n: u8) -> Option<KeyId> {
    Some(KeyId::new([n; 16]))
}

fn large() -> Option<Settings> {
    let text = format!(r#"{{"type":"realtime","instructions":"{}"}}"#, "x".repeat(MAX_BODY_BYTES - 100));
    Some(Settings { text: text.into(), dialect: Dialect::default() })
}

impl EphemeralKeys {
    fn count(&self, owner: Option<KeyId>) -> usize {
        self.secrets.lock().unwrap().iter().filter(|secret| secret.owner == owner).count()
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_opens_until_it_expires() {
    let secrets = store();
    let text = r#"{"type":"realtime","instructions":"Be brief."}"#.into();
    let settings = Settings { text, dialect: Dialect::default() };
    let key = secrets.make(owner(1), 1, Some(settings), LIFE).unwrap();
    assert!(key.starts_with("ek_") && key.len() == 67, "{key}");
    let caller = secrets.find(&key).unwrap();
    assert_eq!(caller.settings.unwrap().instructions.as_deref(), Some("Be brief."));
    assert_eq!(caller.owner, owner(1));
    assert!(secrets.find("ek_other").is_none());
    tokio::time::advance(LIFE).await;
    assert!(secrets.find(&key).is_none());
}

#[tokio::test(start_paused = true)]
async fn the_store_is_bounded_and_forgets_what_expired() {
    let secrets = store();
    for _ in 0..MAX_SECRETS {
        secrets.make(None, 0, None, LIFE).unwrap();
    }
    tokio::time::advance(LIFE / 2).await;
    let Full(wait) = secrets.make(None, 0, None, LIFE).unwrap_err();
    assert_eq!(wait, LIFE / 2);
    tokio::time::advance(wait).await;
    secrets.make(None, 0, None, LIFE).unwrap();
    assert_eq!(secrets.secrets.lock().unwrap().made.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn one_api_key_leaves_the_others_their_share() {
    let secrets = store();
    let fill = |n: u8, n_owners: usize, settings: Option<Settings>| {
        (0..=MAX_SECRETS).take_while(|_| secrets.make(owner(n), n_owners, settings.clone(), LIFE).is_ok()).count()
    };
    assert_eq!(fill(1, 2, None), MAX_SECRETS / 2);
    assert_eq!(fill(2, 2, None), MAX_SECRETS / 2);
    // A key of another owner evicts the oldest key of the owner that holds the most.
    secrets.make(owner(3), 3, None, LIFE).unwrap();
    assert_eq!(secrets.count(owner(3)), 1);
    assert_eq!(secrets.secrets.lock().unwrap().made.len(), MAX_SECRETS);
    secrets.retain(|key| key != owner(1));
    assert_eq!(secrets.count(owner(1)), 0);
}

#[tokio::test(start_paused = true)]
async fn settings_count_by_their_bytes() {
    let secrets = store();
    let made = (0..).take_while(|_| secrets.make(owner(1), 9, large(), LIFE).is_ok()).count();
    assert_eq!(made, MAX_BYTES / SHARES / (MAX_BODY_BYTES - 100 + 41 + OVERHEAD));
    secrets.make(owner(2), 9, large(), LIFE).unwrap();
    let bytes: usize = secrets.secrets.lock().unwrap().iter().map(Secret::bytes).sum();
    assert!(bytes <= MAX_BYTES, "{bytes}");
}

#[tokio::test(start_paused = true)]
async fn those_of_other_hubs_are_kept_beside_a_full_share_of_own_ones() {
    let secrets = store();
    let n_own = (0..).take_while(|_| secrets.make(owner(1), 4, None, LIFE).is_ok()).count();
    assert_eq!(n_own, MAX_SECRETS / SHARES);
    let fetched = |n: usize| {
        let key = format!("ek_{n}");
        let expires = Instant::now() + LIFE;
        secrets.keep(Secret { digest: keys::digest(&key), expires, owner: owner(1), settings: None }, 4);
        key
    };
    // One that two sessions fetch at once is kept once.
    fetched(0);
    let first = fetched(0);
    assert!(secrets.find(&first).is_some());
    assert_eq!(secrets.count(owner(1)), n_own + 1);
    let last = (1..=n_own).map(fetched).last().expect("there are some");
    assert!(secrets.find(&last).is_some());
    assert!(secrets.find(&first).is_none(), "the oldest made room");
    assert_eq!(secrets.count(owner(1)), 2 * n_own);
}
