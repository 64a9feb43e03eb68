//! The NATS server's configuration for a cluster: an account for each environment, users for hubs and workers that may do what
//! the subjects of [`subject`](crate::subject) need and nothing else, and the recommended settings of the server.
//!
//! `antiphon cluster permissions` prints it. Hubs and workers never read it; it holds public keys only.

use std::collections::BTreeSet;

use crate::{jetstream, subject};

/// Length of a public nkey: base32 of a prefix, 32 bytes and a checksum.
const PUBLIC_KEY_CHARACTERS: usize = 56;

/// Why a configuration cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PermissionsError {
    /// An environment's name is not one.
    #[error("{0:?} cannot name an environment: use lower-case letters, digits and hyphens, a letter first")]
    Name(String),
    /// Two environments have one name.
    #[error("the environment {0} is named twice")]
    NameTwice(String),
    /// There is none.
    #[error("no environment is named")]
    Empty,
    /// Something that is no public nkey of a user. Not repeated: it may be a password.
    #[error("this is not the public nkey of a user, which begins with U and has {PUBLIC_KEY_CHARACTERS} characters")]
    Key,
    /// The secret half of a key.
    #[error(
        "this is the seed of an nkey, which stays with its hub or worker: give the public key, which begins with U"
    )]
    Seed,
    /// One key belongs to two users, which NATS refuses.
    #[error("the nkey {0} is given twice: each user has its own")]
    KeyTwice(String),
}

/// The environments of a NATS server or cluster. The default is `production` without keys.
#[derive(Clone, Debug)]
pub struct Permissions {
    environments: Vec<Environment>,
}

impl Permissions {
    /// These environments.
    ///
    /// # Errors
    /// Where there is none, or two share a name or a key.
    pub fn new(environments: Vec<Environment>) -> Result<Self, PermissionsError> {
        if environments.is_empty() {
            return Err(PermissionsError::Empty);
        }
        let mut names = BTreeSet::new();
        let mut keys = BTreeSet::new();
        for environment in &environments {
            if !names.insert(&environment.name) {
                return Err(PermissionsError::NameTwice(environment.name.clone()));
            }
            if let Some(key) = environment.hubs.iter().chain(&environment.workers).find(|&key| !keys.insert(key)) {
                return Err(PermissionsError::KeyTwice(key.clone()));
            }
        }
        Ok(Self { environments })
    }
}

impl Default for Permissions {
    fn default() -> Self {
        let production = Environment { name: "production".into(), hubs: Vec::new(), workers: Vec::new() };
        Self { environments: vec![production] }
    }
}

/// One environment: a NATS account, whose hubs and workers see each other and no other client.
#[derive(Clone, Debug)]
pub struct Environment {
    name: String,
    hubs: Vec<String>,
    workers: Vec<String>,
}

impl Environment {
    /// An environment without keys: the configuration then reads them from the server's environment variables.
    ///
    /// # Errors
    /// Where the name has other characters than lower-case letters, digits and hyphens, or does not begin with a letter.
    pub fn new(name: &str) -> Result<Self, PermissionsError> {
        let is_name = name.starts_with(|first: char| first.is_ascii_lowercase())
            && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'));
        if !is_name {
            return Err(PermissionsError::Name(name.into()));
        }
        Ok(Self { name: name.into(), hubs: Vec::new(), workers: Vec::new() })
    }

    /// Adds the public nkey of a user for hubs. Any number of hubs may share a user; a second one serves to exchange keys.
    ///
    /// # Errors
    /// Where it is not the public nkey of a user. The checksum is left to `nats-server -t`.
    pub fn with_hub(mut self, public_key: &str) -> Result<Self, PermissionsError> {
        self.hubs.push(checked(public_key)?);
        Ok(self)
    }

    /// Adds the public nkey of a user for workers. Any number of workers may share a user.
    ///
    /// # Errors
    /// Like [`with_hub`](Self::with_hub).
    pub fn with_worker(mut self, public_key: &str) -> Result<Self, PermissionsError> {
        self.workers.push(checked(public_key)?);
        Ok(self)
    }

    fn account(&self) -> String {
        let users = self.users(Role::Hub).chain(self.users(Role::Worker));
        // Quoted, because `include` and the like mean something else to NATS.
        format!(
            "  \"{}\": {{\n    jetstream: enabled\n    users: [\n{}    ]\n  }}\n",
            self.name,
            users.collect::<String>()
        )
    }

    fn users(&self, role: Role) -> impl Iterator<Item = String> {
        let keys = match role {
            Role::Hub => &self.hubs,
            Role::Worker => &self.workers,
        };
        let placeholder = keys.is_empty().then(|| format!("${}", self.variable(role)));
        let keys = keys.iter().map(|key| format!("\"{key}\"")).chain(placeholder);
        keys.map(move |key| format!("      {{ nkey: {key}, permissions: ${} }}\n", role.variable()))
    }

    /// The environment variable that holds a role's public key where none is given.
    fn variable(&self, role: Role) -> String {
        format!("{}_{}_NKEY", role.variable(), self.name.to_ascii_uppercase().replace('-', "_"))
    }
}

/// The configuration, in NATS's format: for `nats-server -c`, or for `include` in a configuration that has no `accounts` of its
/// own. NATS refuses it while a variable that stands for a missing key is not set.
#[must_use]
pub fn configuration(options: &Permissions) -> String {
    let accounts: String = options.environments.iter().map(Environment::account).collect();
    format!(
        "{HEAD}\n{}\n{}\n{ACCOUNTS}accounts {{\n{accounts}}}\n\n{SETTINGS}",
        Role::Hub.permissions(),
        Role::Worker.permissions()
    )
}

const HEAD: &str = r"# NATS server configuration of an Antiphon cluster. Check it with: nats-server -t -c FILE
#
# A user is a key pair: `antiphon cluster key FILE` writes the seed, which only the hub or worker gets, and prints the public
# key, which belongs here. Names with $ are defined in this file or are environment variables of the server that hold a public key.
#
# A hub cannot answer in the place of a worker or receive what is sent to workers; a worker cannot ask workers or receive what is
# sent to hubs. Hubs of one account could receive what is sent to each other, and so could its workers: where that must not be,
# use accounts. Request inboxes (_INBOX) are not permitted: hubs and workers do not use them. Of JetStream ($JS) hubs may use
# what is named antiphon or ANTIPHON, for cluster.jetstream = true; workers may not use it. Hubs seal what they keep there.
";

const ACCOUNTS: &str = r"# An account for each environment: hubs and workers of one account do not see those of another.
";

const SETTINGS: &str = r#"# The largest message, in bytes: 1 MiB. Hubs and workers send at most half of it; more would delay the audio behind it.
max_payload: 1048576

# Bytes that may wait for one client: 64 MiB. What hubs and workers have in flight is bounded by credit, so a client that gets
# here has stopped reading, and is disconnected.
max_pending: 67108864

# A client that accepts no bytes for this long is disconnected. A frozen worker is then gone after about 4 s; with the default
# of 10 s it is after 12 s.
write_deadline: "2s"

# A client that does not answer two pings is disconnected. With the default of 2 min a machine that vanished without closing its
# connections would stay subscribed for minutes.
ping_interval: "20s"
ping_max: 2

# For cluster.jetstream = true: where hubs keep what they share. max_file_store bounds it; hubs set aside 1.6 GiB and twice
# speech.jobs_max_mib. Keep the folder on a disk that survives a restart. In a cluster each server needs a server_name.
# jetstream {
#   store_dir: "/var/lib/nats"
#   max_file_store: 20GB
# }

# Without TLS, speech and its text are readable on the network. Hubs and workers then connect to tls:// addresses.
# tls {
#   cert_file: "/path/to/server-certificate.pem"
#   key_file: "/path/to/server-key.pem"
#   # Accept only clients with a certificate of this authority:
#   # ca_file: "/path/to/authority.pem"
#   # verify: true
# }
"#;

/// What a user of the cluster is.
#[derive(Clone, Copy)]
enum Role {
    Hub,
    Worker,
}

impl Role {
    fn variable(self) -> &'static str {
        match self {
            Self::Hub => "ANTIPHON_HUB",
            Self::Worker => "ANTIPHON_WORKER",
        }
    }

    fn publishes(self) -> Vec<String> {
        match self {
            Self::Hub => [
                subject::any_advert_of_hub(),
                subject::any_open(),
                subject::any_inbound(),
                subject::any_ask(),
                subject::any_reply(),
                subject::any_news(),
            ]
            .into_iter()
            .chain(jetstream::published())
            .collect(),
            Self::Worker => vec![subject::any_advert_of_worker(), subject::any_outbound()],
        }
    }

    fn subscribes(self) -> Vec<String> {
        match self {
            Self::Hub => {
                vec![
                    subject::any_advert(),
                    subject::any_outbound(),
                    subject::any_ask(),
                    subject::any_reply(),
                    subject::any_news(),
                    subject::any_inbox(),
                ]
            }
            Self::Worker => vec![subject::any_advert(), subject::any_open(), subject::any_inbound()],
        }
    }

    fn permissions(self) -> String {
        format!(
            "{} = {{\n  publish: {{ allow: {:?} }}\n  subscribe: {{ allow: {:?} }}\n}}\n",
            self.variable(),
            self.publishes(),
            self.subscribes()
        )
    }
}

fn checked(public_key: &str) -> Result<String, PermissionsError> {
    let is_base32 = public_key.bytes().all(|byte| matches!(byte, b'A'..=b'Z' | b'2'..=b'7'));
    match public_key.get(..1) {
        Some("U") if is_base32 && public_key.len() == PUBLIC_KEY_CHARACTERS => Ok(public_key.into()),
        Some("S") if is_base32 && public_key.len() > PUBLIC_KEY_CHARACTERS => Err(PermissionsError::Seed),
        _ => Err(PermissionsError::Key),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Output};
    use std::time::Duration;

    use async_nats::{Client, ConnectOptions, Event, Message, StatusCode, Subscriber};
    use futures_util::StreamExt as _;
    use nkeys::KeyPair;
    use tokio::sync::mpsc;

    use super::*;
    use crate::testing::{NatsServer, program};

    const SOON: Duration = Duration::from_secs(10);

    #[test]
    fn the_server_accepts_it() {
        // Some of the names mean something in NATS's format.
        for name in ["production", "staging-2", "include", "true", "x"] {
            let environment = Environment::new(name).unwrap().with_hub(&key()).unwrap().with_hub(&key()).unwrap();
            let other = Environment::new("other").unwrap().with_hub(&key()).unwrap().with_worker(&key()).unwrap();
            let options = Permissions::new(vec![environment.with_worker(&key()).unwrap(), other]).unwrap();
            let output = check(&configuration(&options), &[]);
            assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }

    #[test]
    fn a_missing_key_is_a_variable_that_must_be_set() {
        let text = configuration(&Permissions::default());
        let output = check(&text, &[]);
        assert!(!output.status.success());
        assert!(String::from_utf8_lossy(&output.stderr).contains("ANTIPHON_HUB_PRODUCTION_NKEY"));
        let keys = [("ANTIPHON_HUB_PRODUCTION_NKEY", key()), ("ANTIPHON_WORKER_PRODUCTION_NKEY", key())];
        let output = check(&text, &keys);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    #[test]
    fn the_commented_tls_settings_are_valid() {
        let options = Permissions::new(vec![
            Environment::new("production").unwrap().with_hub(&key()).unwrap().with_worker(&key()).unwrap(),
        ]);
        let text = configuration(&options.unwrap());
        let (before, tls) = text.split_once("# tls {").unwrap();
        let uncommented: String =
            tls.lines().map(|line| line.trim_start_matches(['#', ' ']).to_owned() + "\n").collect();
        let folder = tempfile::tempdir().unwrap();
        let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).unwrap();
        write("server-certificate.pem", certified.cert.pem());
        write("authority.pem", certified.cert.pem());
        write("server-key.pem", certified.signing_key.serialize_pem());
        let uncommented = uncommented
            .replace("Accept only", "# Accept only")
            .replace("/path/to", folder.path().to_str().expect("a folder in UTF-8"));
        let output = check(&format!("{before}tls {{{uncommented}"), &[]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    #[test]
    fn the_commented_jetstream_settings_are_valid() {
        let folder = tempfile::tempdir().unwrap();
        let text = configuration(&Permissions::default());
        let (before, rest) = text.split_once("# jetstream {").unwrap();
        let (section, after) = rest.split_once("# }").unwrap();
        let section = section.replace("\n# ", "\n").replace("/var/lib/nats", folder.path().to_str().unwrap());
        let keys = [("ANTIPHON_HUB_PRODUCTION_NKEY", key()), ("ANTIPHON_WORKER_PRODUCTION_NKEY", key())];
        let output = check(&format!("{before}jetstream {{{section}}}{after}"), &keys);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    #[test]
    fn what_could_change_the_configuration_is_refused() {
        for name in ["", "Production", "1st", "-a", "a b", "a\"", "a}", "$SYS", "a\n", "é"] {
            assert_eq!(Environment::new(name).unwrap_err(), PermissionsError::Name(name.into()));
        }
        let environment = Environment::new("production").unwrap();
        let user = KeyPair::new_user();
        let account = KeyPair::new_account().public_key();
        for (wrong, error) in [
            (user.seed().unwrap(), PermissionsError::Seed),
            (account, PermissionsError::Key),
            (String::new(), PermissionsError::Key),
            ("é".into(), PermissionsError::Key),
            (key() + "A", PermissionsError::Key),
            (key().to_lowercase(), PermissionsError::Key),
            (format!("U{}", "\"".repeat(55)), PermissionsError::Key),
        ] {
            assert_eq!(environment.clone().with_hub(&wrong).unwrap_err(), error, "{wrong}");
            assert_eq!(environment.clone().with_worker(&wrong).unwrap_err(), error, "{wrong}");
            assert!(wrong.is_empty() || !error.to_string().contains(&wrong));
        }
    }

    #[test]
    fn what_the_server_would_refuse_is_refused() {
        let environment = |name| Environment::new(name).unwrap();
        assert_eq!(Permissions::new(Vec::new()).unwrap_err(), PermissionsError::Empty);
        let twice = vec![environment("production"), environment("production")];
        assert_eq!(Permissions::new(twice).unwrap_err(), PermissionsError::NameTwice("production".into()));
        let key = key();
        let shared =
            vec![environment("production").with_hub(&key).unwrap(), environment("b").with_worker(&key).unwrap()];
        assert_eq!(Permissions::new(shared).unwrap_err(), PermissionsError::KeyTwice(key));
    }

    #[tokio::test]
    async fn hubs_and_workers_may_do_what_they_need() {
        let (_server, [(hub, _), (worker, _)]) = start(["production"]).await.pop_first();
        let mut at_hub =
            [received(&hub, &subject::any_advert()).await, received(&hub, &subject::outbound_of("b2")).await];
        let mut at_worker = [
            received(&worker, &subject::any_advert()).await,
            received(&worker, &subject::open("a1")).await,
            received(&worker, &subject::inbound_of("a1")).await,
        ];
        ready(&hub, &mut at_hub[0], subject::advert_of_hub("ready")).await;
        ready(&worker, &mut at_worker[0], subject::advert_of_worker("ready")).await;

        for (subject, messages) in [subject::advert_of_hub("b2"), subject::open("a1"), subject::inbound("a1", 7)]
            .into_iter()
            .zip(&mut at_worker)
        {
            hub.publish(subject.clone(), subject.clone().into()).await.unwrap();
            assert_eq!(text(&next_of(messages, &subject).await), subject);
        }
        for (subject, messages) in
            [subject::advert_of_worker("a1"), subject::outbound("b2", 7)].into_iter().zip(&mut at_hub)
        {
            worker.publish(subject.clone(), subject.clone().into()).await.unwrap();
            assert_eq!(text(&next_of(messages, &subject).await), subject);
        }

        // Hubs hear each other.
        for subject in [subject::news_of("b2"), subject::ask("b2"), subject::reply("b2", 7)] {
            let mut heard = received(&hub, &subject).await;
            hub.publish(subject.clone(), subject.clone().into()).await.unwrap();
            assert_eq!(text(&next_of(&mut heard, &subject).await), subject);
        }

        // The hub learns that what it sends has no receiver.
        for gone in [subject::open("c3"), subject::inbound("c3", 8)] {
            hub.publish_with_reply(gone, subject::outbound("b2", 8), "x".into()).await.unwrap();
            assert_eq!(next(&mut at_hub[1]).await.status, Some(StatusCode::NO_RESPONDERS));
        }
    }

    #[tokio::test]
    async fn hubs_and_workers_may_do_nothing_else() {
        let (_server, [(hub, mut at_hub), (worker, mut at_worker)]) = start(["production"]).await.pop_first();
        let nobodys =
            ["_INBOX.a", "$JS.API.INFO", "$SRV.PING", "antiphon.v2.open.a1", "antiphon.v1", "other"].map(str::to_owned);
        let hubs_not = [subject::advert_of_worker("a1"), subject::outbound("b2", 7)];
        let workers_not = [
            subject::advert_of_hub("b2"),
            subject::open("a1"),
            subject::inbound("a1", 7),
            subject::ask("b2"),
            subject::reply("b2", 7),
            subject::news_of("b2"),
        ];
        for subject in hubs_not.iter().chain(&nobodys) {
            refused_to_publish(&hub, &mut at_hub, subject).await;
        }
        for subject in workers_not.iter().chain(&nobodys) {
            refused_to_publish(&worker, &mut at_worker, subject).await;
        }
        let nobodys =
            ["_INBOX.>", "$JS.>", "$SYS.>", "$SRV.>", "antiphon.>", "antiphon.v1.>", ">", "*"].map(str::to_owned);
        let hubs_not = [subject::any_inbound(), subject::inbound_of("a1"), subject::any_open(), subject::open("a1")];
        let workers_not = [
            subject::any_outbound(),
            subject::outbound_of("b2"),
            subject::any_ask(),
            subject::any_reply(),
            subject::any_news(),
        ];
        for subject in hubs_not.iter().chain(&nobodys) {
            refused_to_subscribe(&hub, &mut at_hub, subject).await;
        }
        for subject in workers_not.iter().chain(&nobodys) {
            refused_to_subscribe(&worker, &mut at_worker, subject).await;
        }
    }

    #[tokio::test]
    async fn environments_do_not_see_each_other() {
        let Cluster { server: _server, users } = start(["production", "staging"]).await;
        let [[(hub, _), (worker, _)], [(other_hub, _), (other_worker, _)]] = users.try_into().ok().unwrap();
        let mut opened = received(&worker, &subject::open("a1")).await;
        let mut adverts = received(&worker, &subject::any_advert()).await;
        let mut other_opened = received(&other_worker, &subject::open("a1")).await;
        let mut other_adverts = received(&other_worker, &subject::any_advert()).await;
        ready(&worker, &mut adverts, subject::advert_of_worker("a1")).await;
        ready(&other_worker, &mut other_adverts, subject::advert_of_worker("a1")).await;

        // The first message that the second worker receives is its own hub's.
        for subject in [subject::open("a1"), subject::advert_of_hub("b2")] {
            hub.publish(subject, "1".into()).await.unwrap();
        }
        assert_eq!(text(&next(&mut opened).await), "1");
        assert_eq!(text(&next(&mut adverts).await), "1");
        for subject in [subject::open("a1"), subject::advert_of_hub("b2")] {
            other_hub.publish(subject, "2".into()).await.unwrap();
        }
        assert_eq!(text(&next(&mut other_opened).await), "2");
        assert_eq!(text(&next(&mut other_adverts).await), "2");
    }

    #[tokio::test]
    async fn a_stranger_is_refused() {
        let Cluster { server, users: _users } = start(["production"]).await;
        assert!(async_nats::connect(server.url()).await.is_err());
        let seed = KeyPair::new_user().seed().unwrap();
        assert!(ConnectOptions::with_nkey(seed).connect(server.url()).await.is_err());
    }

    type User = (Client, mpsc::Receiver<Event>);

    /// A server with the printed configuration, and a hub and a worker of each environment.
    struct Cluster {
        server: NatsServer,
        users: Vec<[User; 2]>,
    }

    impl Cluster {
        fn pop_first(mut self) -> (NatsServer, [User; 2]) {
            (self.server, self.users.remove(0))
        }
    }

    async fn start<const N: usize>(names: [&str; N]) -> Cluster {
        let keys = names.map(|name| (name, [KeyPair::new_user(), KeyPair::new_user()]));
        let environments = keys.each_ref().map(|(name, [hub, worker])| {
            let environment = Environment::new(name).unwrap().with_hub(&hub.public_key()).unwrap();
            environment.with_worker(&worker.public_key()).unwrap()
        });
        let text = configuration(&Permissions::new(environments.to_vec()).unwrap());
        let server = NatsServer::start_with(&text).await.unwrap();
        let mut users = Vec::new();
        for (_, [hub, worker]) in keys {
            users.push([connect(&server, &hub).await, connect(&server, &worker).await]);
        }
        Cluster { server, users }
    }

    async fn connect(server: &NatsServer, key: &KeyPair) -> User {
        let (sender, events) = mpsc::channel(64);
        let options = ConnectOptions::with_nkey(key.seed().unwrap()).event_callback(move |event| {
            let sender = sender.clone();
            async move {
                let _ = sender.send(event).await;
            }
        });
        (options.connect(server.url()).await.unwrap(), events)
    }

    async fn received(client: &Client, subject: &str) -> Subscriber {
        client.subscribe(subject.to_owned()).await.unwrap()
    }

    /// Returns once the server has what the client subscribed before: its own advert says so, which arrives at its sender, too.
    async fn ready(client: &Client, adverts: &mut Subscriber, own_advert: String) {
        client.publish(own_advert.clone(), "ready".into()).await.unwrap();
        next_of(adverts, &own_advert).await;
    }

    async fn next(messages: &mut Subscriber) -> Message {
        tokio::time::timeout(SOON, messages.next()).await.unwrap().unwrap()
    }

    /// The next message on a subject, without those on others.
    async fn next_of(messages: &mut Subscriber, subject: &str) -> Message {
        loop {
            let message = next(messages).await;
            if message.subject.as_str() == subject {
                return message;
            }
        }
    }

    fn text(message: &Message) -> &str {
        std::str::from_utf8(&message.payload).unwrap()
    }

    async fn refused_to_publish(client: &Client, events: &mut mpsc::Receiver<Event>, subject: &str) {
        client.publish(subject.to_owned(), "x".into()).await.unwrap();
        refused(events, "publish", subject).await;
    }

    async fn refused_to_subscribe(client: &Client, events: &mut mpsc::Receiver<Event>, subject: &str) {
        let _subscriber = received(client, subject).await;
        refused(events, "subscription", subject).await;
    }

    async fn refused(events: &mut mpsc::Receiver<Event>, action: &str, subject: &str) {
        let expected = format!("permissions violation for {action} to \"{}\"", subject.to_lowercase());
        let waiting = async { while !events.recv().await.unwrap().to_string().to_lowercase().contains(&expected) {} };
        assert!(tokio::time::timeout(SOON, waiting).await.is_ok(), "not refused: {action} {subject}");
    }

    fn key() -> String {
        KeyPair::new_user().public_key()
    }

    /// What `nats-server -t` says to a configuration.
    fn check(text: &str, variables: &[(&str, String)]) -> Output {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("nats.conf");
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new(program().unwrap());
        command.args(["-t", "-c"]).arg(&file).envs(variables.iter().map(|(name, value)| (name, value)));
        command.output().unwrap()
    }
}
