//! Why a hub or a worker cannot join the cluster.

/// A failure at start. The text says what is wrong and what to do.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// A setting is missing or invalid.
    #[error("cluster.{setting}: {message}")]
    Setting {
        /// The key in the section `[cluster]`.
        setting: &'static str,
        /// What is wrong and what would be right.
        message: String,
    },
    /// No server answers.
    #[error("no NATS server answers at {servers}: {message}; check cluster.servers, and that nats-server runs there")]
    Unreachable {
        /// The addresses, without credentials.
        servers: String,
        /// The client's message.
        message: String,
    },
    /// The server refuses the credentials.
    #[error(
        "NATS at {servers} refuses the credentials: {message}; check cluster.credentials, and the user's entry in the \
         configuration of nats-server (`antiphon cluster permissions` prints one)"
    )]
    Credentials {
        /// The addresses.
        servers: String,
        /// The client's message.
        message: String,
    },
    /// TLS failed.
    #[error(
        "no TLS connection to NATS at {servers}: {message}; check cluster.tls_ca, cluster.tls_cert and cluster.tls_key"
    )]
    Tls {
        /// The addresses.
        servers: String,
        /// The client's message.
        message: String,
    },
    /// The server is too old.
    #[error(
        "nats-server {found} at {servers} is too old: {required} or newer is required, older ones have known vulnerabilities"
    )]
    TooOld {
        /// The addresses.
        servers: String,
        /// Its version.
        found: String,
        /// The oldest version that serves.
        required: &'static str,
    },
    /// The server takes too small messages.
    #[error(
        "nats-server at {servers} takes messages of {found} bytes at most; set max_payload to {required} or more there"
    )]
    Payload {
        /// The addresses.
        servers: String,
        /// Its limit.
        found: usize,
        /// The smallest limit that serves.
        required: usize,
    },
    /// The user lacks a permission.
    #[error(
        "NATS does not permit what a {role} does: {message}; `antiphon cluster permissions` prints the users' entries for the \
         configuration of nats-server"
    )]
    Permission {
        /// "hub" or "worker".
        role: &'static str,
        /// The server's message.
        message: String,
    },
    /// Another worker with the same name is running.
    #[error(
        "a worker named {name:?} is running already (incarnation {incarnation}); give this one another name with --name, or \
         stop the other one first"
    )]
    NameTaken {
        /// The name.
        name: String,
        /// The other worker's incarnation.
        incarnation: String,
    },
    /// Another worker serves a different model under the same name.
    #[error(
        "the worker {other:?} serves another model under the name {model:?} of stage {stage}: all workers need the same files; \
         copy the model from there, or serve it under another name"
    )]
    OtherModel {
        /// The other worker's name.
        other: String,
        /// The stage.
        stage: crate::Stage,
        /// The model's name.
        model: String,
    },
    /// A stage would have two models.
    #[error(
        "the worker {other:?} serves {model:?} of stage {stage}, this one would serve {own:?}: the stage has one model for all, \
         else it would depend on the worker which one answers. Serve {model:?} (is it pulled here?), stop the workers that do, or \
         name the model of the stage in cluster.{stage}_model of hubs and workers, and a second one in \
         cluster.{stage}_fallback_model"
    )]
    SecondModel {
        /// The other worker.
        other: String,
        /// The stage.
        stage: crate::Stage,
        /// The model of this worker.
        own: String,
        /// The model of the other.
        model: String,
    },
    /// Another protocol.
    #[error("the worker {other:?} speaks protocol {found}, this program {own}: update the older one of them")]
    Protocol {
        /// The other one's name.
        other: String,
        /// Its protocol.
        found: crate::Protocol,
        /// This program's protocol.
        own: crate::Protocol,
    },
    /// No worker serves a stage.
    #[error(
        "no worker serves {stage}; start one with `antiphon worker --stage {stage}`, or set cluster.fallback = true"
    )]
    NoWorker {
        /// The stage.
        stage: crate::Stage,
    },
    /// The NATS server runs without JetStream.
    #[error(
        "NATS at {servers} has no JetStream for this user, and cluster.jetstream needs it: put `jetstream {{ store_dir: ... }}` \
         into the server's configuration and `jetstream: enabled` into the account ({message})"
    )]
    NoJetStream {
        /// The addresses.
        servers: String,
        /// The server's message.
        message: String,
    },
    /// There are fewer servers than copies.
    #[error(
        "JetStream cannot keep {replicas} copies of {name}: set cluster.replicas to the number of NATS servers with JetStream, \
         or start more of them ({message})"
    )]
    Replicas {
        /// The setting.
        replicas: usize,
        /// The stream.
        name: String,
        /// The server's message.
        message: String,
    },
    /// The servers cannot hold that many copies at this moment.
    #[error(
        "JetStream cannot place {replicas} copies of {name} now: cluster.replicas must not be larger than the number of NATS \
         servers with JetStream that run ({message})"
    )]
    Placement {
        /// The setting.
        replicas: usize,
        /// The stream.
        name: String,
        /// The server's message.
        message: String,
    },
    /// JetStream has no room for a stream.
    #[error(
        "JetStream has no room for {name}, which takes up to {mib} MiB: raise the server's max_file_store or the account's \
         max_file, or lower speech.jobs_max_mib ({message})"
    )]
    Storage {
        /// The stream.
        name: String,
        /// Its bound.
        mib: u64,
        /// The server's message.
        message: String,
    },
    /// A stream exists that is of another kind.
    #[error(
        "the JetStream stream {name} has settings that cannot be changed to those of this version: {message}; remove it with \
         `nats stream rm {name}` (what it holds is lost)"
    )]
    Stream {
        /// The stream.
        name: String,
        /// The server's message.
        message: String,
    },
    /// A stream is full.
    #[error("the JetStream stream {name} is full: {message}; records expire, or raise its bound or the disk's room")]
    Full {
        /// The stream or bucket.
        name: String,
        /// The server's message.
        message: String,
    },
    /// JetStream refuses something else.
    #[error("JetStream refuses {name}: {message}")]
    Refused {
        /// The stream or bucket.
        name: String,
        /// The server's message.
        message: String,
    },
    /// The other hubs have another sealing key.
    #[error(
        "cluster.sealing_key: the key in {file:?} is not the key of the other hubs that use this JetStream: copy their file, or \
         exchange the key as `antiphon cluster sealing-key --help` says ({message})"
    )]
    OtherSealingKey {
        /// The file.
        file: String,
        /// What opening the check record reported.
        message: String,
    },
    /// JetStream does not answer.
    #[error("JetStream at {servers} does not answer: {message}; in a cluster of NATS servers most of them must run")]
    Silent {
        /// The addresses.
        servers: String,
        /// The client's message.
        message: String,
    },
    /// It got the signal to stop.
    #[error("interrupted")]
    Interrupted,
}

impl ClusterError {
    /// Whether it lasts until a setting of this process or of the NATS servers is changed: a restart does not help.
    /// Servers that are away, leaders that are elected, a stream that is full and credentials that the servers do not know yet
    /// may pass.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::Setting { .. }
            | Self::NameTaken { .. }
            | Self::OtherModel { .. }
            | Self::SecondModel { .. }
            | Self::Protocol { .. }
            | Self::Permission { .. }
            | Self::NoJetStream { .. }
            | Self::Replicas { .. }
            | Self::Storage { .. }
            | Self::Stream { .. }
            | Self::OtherSealingKey { .. } => true,
            Self::Unreachable { .. }
            | Self::Credentials { .. }
            | Self::Tls { .. }
            | Self::TooOld { .. }
            | Self::Payload { .. }
            | Self::NoWorker { .. }
            | Self::Placement { .. }
            | Self::Full { .. }
            | Self::Refused { .. }
            | Self::Silent { .. }
            | Self::Interrupted => false,
        }
    }
}
