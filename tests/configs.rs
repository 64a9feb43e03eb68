//! The shipped configurations load, default.toml is complete and correct, and invalid settings are reported clearly.

use antiphon::config::{self, Config, ConfigError, DEFAULT_TOML, FORMER_KEYS, SECTIONS, Sources};
use antiphon_types::setting::{Key, Rule};
use std::path::Path;
use toml::{Table, Value};

fn load_text(text: &str, env: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("my.toml");
    std::fs::write(&path, text).expect("written");
    let env = env.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    config::load(&Sources { file: Some(path), env, ..Sources::default() })
}

/// Golden test: the problems reported for `text` and `env`, one per line, without the folder.
fn check(text: &str, env: &[(&str, &str)], expect: &str) {
    let error = load_text(text, env).expect_err("refused").to_string();
    let said: Vec<_> = error.lines().map(|line| line.rsplit_once("/my.toml").map_or(line, |(_, rest)| rest)).collect();
    let said: Vec<_> = said.iter().map(|line| line.strip_prefix(':').unwrap_or(line)).collect();
    let expect: Vec<_> = expect.trim().lines().map(str::trim).collect();
    assert_eq!(said, expect, "of {text:?} {env:?}");
}

#[test]
fn every_shipped_file_loads() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs");
    let files = std::fs::read_dir(folder).expect("configs/").map(|entry| entry.expect("an entry").path());
    let files: Vec<_> = files.filter(|path| path.extension().is_some_and(|ext| ext == "toml")).collect();
    assert!(files.len() >= 3, "{files:?}");
    for file in files {
        let sources = Sources { file: Some(file.clone()), ..Sources::default() };
        config::load(&sources).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }
}

#[test]
fn default_toml_says_what_the_code_does() {
    assert_eq!(load_text(DEFAULT_TOML, &[]).expect("loads"), Config::default());
    assert_eq!(config::load(&Sources::default()).expect("loads"), Config::default());
}

/// What stands above the sections of `configs/default.toml`.
const HEAD: &str = "Antiphon's settings, each with its default. This file is built into the binary; a file given by --config \
    contains only the keys that it changes. The environment overrides both: `ANTIPHON_<SECTION>__<KEY>`, for example \
    `ANTIPHON_LLM__ENGINE=openai`. `antiphon config check FILE` reports everything that is wrong with a file. A number is \
    in the unit that its name ends with; an empty value means none, unless its text says otherwise.";

/// `configs/default.toml`, from the sections and the defaults of their structs.
fn default_toml() -> String {
    let defaults = Table::try_from(Config::default()).expect("serializes");
    let mut file = comment(HEAD);
    for section in &SECTIONS {
        file += &format!("\n{}[{}]\n", comment(&section.text.concat()), section.name);
        for (place, key) in section.keys.iter().enumerate() {
            let blank = if place == 0 { "" } else { "\n" };
            let value = written(&defaults[section.name][key.name]);
            file += &format!("{blank}{}{} = {value}\n", comment(&meaning(key)), key.name);
        }
    }
    file
}

/// Keeps two words in one line.
const NO_BREAK: char = '\u{a0}';

/// The text of a key with its range, which stands before what its numbers mean: "0 to 1000; 0: never."
fn meaning(key: &Key) -> String {
    let range = match key.rule {
        Rule::Whole(min, max, _) => format!("{min} to {max}"),
        Rule::Number(min, max) => format!("{min:?} to {max:?}"),
        Rule::Wholes(min, max, _) => format!("{min} to {max} each"),
        _ => return key.text.concat(),
    };
    let range = range.replace(' ', &NO_BREAK.to_string());
    let text = key.text.concat();
    let is_number = |rest: &str| rest.starts_with(|c: char| c == '-' || c.is_ascii_digit());
    match text.match_indices(". ").find(|(dot, _)| is_number(&text[dot + 2..])) {
        Some((dot, _)) => format!("{}. {range}; {}", &text[..dot], &text[dot + 2..]),
        None => format!("{text} {range}."),
    }
}

/// A text as a comment of lines of at most 120 characters.
fn comment(text: &str) -> String {
    const WIDTH: usize = 120;
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        match lines.last_mut().filter(|line| line.chars().count() + 1 + word.chars().count() <= WIDTH) {
            Some(line) => *line += &format!(" {word}"),
            None => lines.push(format!("# {word}")),
        }
    }
    lines.iter().map(|line| format!("{line}\n").replace(NO_BREAK, " ")).collect()
}

/// A value in TOML. A 32-bit number has the digits that it was written with.
fn written(value: &Value) -> String {
    match value {
        Value::Float(number) if f64::from(*number as f32) == *number => format!("{:?}", *number as f32),
        value => value.to_string(),
    }
}

#[test]
fn default_toml_is_what_the_settings_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/default.toml");
    let expected = default_toml();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &expected).expect("written");
    }
    let file = std::fs::read_to_string(&path).expect("configs/default.toml");
    let other = file.lines().zip(expected.lines()).find(|(is, should)| is != should);
    assert!(file == expected, "configs/default.toml is old ({other:?}); run this test with UPDATE_EXPECT=1");
}

#[test]
fn all_sections_of_the_configuration_are_listed() {
    let structs = Table::try_from(Config::default()).expect("serializes");
    let mut listed: Vec<_> = SECTIONS.iter().map(|section| section.name).collect();
    listed.sort_unstable();
    assert_eq!(structs.keys().collect::<Vec<_>>(), listed);
}

#[test]
fn what_a_rule_lets_through_its_struct_takes() {
    for key in config::keys() {
        let ends = match key.rule {
            Rule::Whole(min, max, _) => vec![Value::Integer(min), Value::Integer(max)],
            Rule::Number(min, max) => vec![Value::Float(min), Value::Float(max)],
            _ => continue,
        };
        for end in ends {
            load_text(&format!("[{}]\n{} = {end}\n", key.section, key.name), &[]).expect("the ends are included");
        }
    }
}

#[test]
fn wrong_keys_are_named_with_their_line() {
    check(
        "[llm]\nengnie = \"openai\"\n\n[turn]\nvoice = \"slt\"\ncolour = 3\n[voice]\nx = 1\n",
        &[],
        "2: there is no key engnie in [llm]; did you mean engine?
         5: there is no key voice in [turn]; it belongs into [tts]
         6: there is no key colour in [turn]; its keys are threshold, prefix_padding_ms, silence_duration_ms, min_speech_ms, model
         7: there is no section [voice]; the sections are vad, turn, speaker, stt, llm, tts, models, onnx, mcp, speculation, session, rtc, server, limits, slo, speech, telephony, sip, wyoming, cluster, telemetry",
    );
    check(
        "max_sessions = 3\n[lllm]\n",
        &[],
        "1: max_sessions stands outside a section; write it below [server]
         2: there is no section [lllm]; did you mean [llm]?",
    );
    check("llm = 3\n", &[], "1: llm is a section: write [llm] and its keys below it");
}

#[test]
fn wrong_values_are_named_with_what_would_be_right() {
    check(
        "[turn]\nthreshold = 1.5\nmin_speech_ms = \"100\"\n[tts]\nengine = \"flit\"\nspeed = nan\n[stt]\nbase_url = \"localhost:80\"\n",
        &[],
        r#"2: turn.threshold = 1.5: write a number from 0 to 1
         3: turn.min_speech_ms = "100": write a whole number from 0 to 2000 (milliseconds)
         5: tts.engine = "flit": write "auto" or "flite" or "piper" or "kokoro" or "hibari" or "speechlm" or "openai" or "fish" or "moshi"; did you mean "flite"?
         6: tts.speed = nan: write a number from 0.25 to 4
         8: stt.base_url = "localhost:80": write an address such as "http://127.0.0.1:11434/v1""#,
    );
    check(
        "[server]\nlisten = \"127.0.0.1\"\nmax_sessions = 99999999999999999999\nallowed_origins = [\"example.org\"]\nallowed_hosts = \"a\"\n[stt]\nlanguage = \"klingon\"\n",
        &[],
        r#"2: server.listen = "127.0.0.1": write an address and a port, such as "127.0.0.1:8080"
         3: server.max_sessions = 99999999999999999999: write a whole number from 1 to 1000000 (sessions)
         4: server.allowed_origins = ["example.org"]: write a list of web origins, such as ["https://voice.example.org"]
         5: server.allowed_hosts = "a": write a list of host names without port, such as ["voice.example.org"]
         7: stt.language = "klingon": write a language's two letters, such as "en", "auto" for the one that is heard, or "" for the engine's own choice"#,
    );
}

#[test]
fn a_fallback_is_a_table_of_its_stages_keys() {
    let text = "[llm]\nengine = \"openai\"\n[llm.fallback]\nengine = \"openai\"\nmodel = \"small\"\n";
    let config = load_text(text, &[("ANTIPHON_STT__FALLBACK", "{ engine = \"none\", decoders = 1 }")]).expect("loads");
    let stt = config.stt.fallback.expect("one");
    let llm = config.llm.fallback.expect("one");
    assert_eq!((stt.engine.as_str(), stt.decoders, llm.model.as_str()), ("none", 1, "small"));
    assert_eq!((config.tts.fallback, llm.fallback), (None, None));
    check(
        "[tts]\nspeed = 1.0\n[tts.fallback]\nengine = \"flit\"\nspede = 1.0\nfallback = {}\n[stt.fallback]\ndecoders = 2\n",
        &[],
        r#"4: tts.fallback: tts.engine = "flit": write "auto" or "flite" or "piper" or "kokoro" or "hibari" or "speechlm" or "openai" or "fish" or "moshi"; did you mean "flite"?
         5: tts.fallback: there is no key spede in [tts]; did you mean speed?
         6: tts.fallback: a fallback has no fallback; it belongs into [tts]
         7: stt.fallback: its engine is missing: set engine"#,
    );
}

#[test]
fn a_wrong_key_of_a_trunk_a_route_or_an_account_is_named_with_its_line() {
    check(
        "[sip.trunks.a]
allow = [\"10.0.0.5\"]
hots = \"x\"
transport = \"tpc\"
[sip.trunks.\"b c\"]
colour = 1
[telephony.routes.default]
greting = \"Hello.\"
[telephony.routes.\"+15550100\"]
session = \"x\"
[telephony.accounts.main]
account_sid = \"AC0123\"
auth_token_env = \"sk very-secret\"
",
        &[("ANTIPHON_SIP__TRUNKS", "{ office = { alow = [] } }"), ("ANTIPHON_TELEPHONY__ACCOUNTS", "{ main = 3 }")],
        r#"3: sip.trunks.a: there is no key hots; did you mean host?
         4: sip.trunks.a.transport = "tpc": write "udp" or "tcp" or "tls"
         6: sip.trunks."b c": there is no key colour; its keys are allow, username, password_env, register, register_as, host, transport, srtp, refer_replaces, caller, key, route
         8: telephony.routes.default: there is no key greting; did you mean greeting?
         10: telephony.routes."+15550100".session = "x": write a table, as in session.update
         11: telephony.accounts.main: its kind is missing: set kind = "twilio" or "asterisk"
         13: telephony.accounts.main.auth_token_env = (not shown): write the name of an environment variable, such as "OFFICE_PASSWORD"
         environment variable ANTIPHON_SIP__TRUNKS: sip.trunks.office: there is no key alow; did you mean allow?
         environment variable ANTIPHON_TELEPHONY__ACCOUNTS: telephony.accounts.main is no table of keys: write telephony.accounts as a table of accounts, such as { main = { kind = "twilio", account_sid = "AC0123", numbers = ["+15550100"] } }"#,
    );
    let expect = r#"2: sip.trunks = 3: write a table of peers, such as { office = { allow = ["10.0.0.5"] } }"#;
    check("[sip]\ntrunks = 3\n", &[], expect);
}

#[test]
fn accounts_need_the_hubs_public_address() {
    let account = "[telephony.accounts.main]\nkind = \"twilio\"\naccount_sid = \"AC0123\"\nnumbers = [\"+15550100\"]\n";
    let found = hub_problems(account, &[]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("my.toml:1: telephony.accounts needs server.public_url"), "{found:?}");
    assert!(hub_problems(account, &[("ANTIPHON_SERVER__PUBLIC_URL", "https://voice.example")]).is_empty());
    let asterisk = "[telephony.accounts.main]\nkind = \"asterisk\"\napi_url = \"http://10.0.0.5:8088\"\n\
                    username = \"a\"\npassword_env = \"A\"\nendpoint = \"PJSIP/{number}@b\"\nnumbers = [\"100\"]\n";
    assert!(hub_problems(asterisk, &[]).is_empty(), "the address is in Asterisk's own configuration");
    // A rejected address is not missing as well.
    let found = hub_problems(account, &[("ANTIPHON_SERVER__PUBLIC_URL", "voice.example")]);
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn callers_are_asked_by_a_notice() {
    let text = "[telephony]\nkey_pause_ms = 500\nrecording_consent = \"key\"\n";
    let found = hub_problems(text, &[]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("my.toml:3: telephony.recording_consent = \"key\" needs"), "{found:?}");
    let notice = ("ANTIPHON_TELEPHONY__RECORDING_NOTICE", "Press 1 if we may record this call.");
    assert!(hub_problems(text, &[notice]).is_empty());
}

#[test]
fn a_limit_of_answers_is_longer_than_the_notice_of_a_recording() {
    let text = |record: &str, seconds: u32| {
        format!(
            "[session]\nrecord = \"{record}\"\nmax_answer_seconds = {seconds}\n\
             [telephony]\nrecording_notice = \"We record this call.\"\n"
        )
    };
    let found = hub_problems(&text("recordings", 1), &[]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("my.toml:3: session.max_answer_seconds may cut off telephony."), "{found:?}");
    assert!(found[0].ends_with("write 0 or at least 2"), "{found:?}");
    for (record, seconds) in [("recordings", 2), ("recordings", 0), ("", 1)] {
        assert!(hub_problems(&text(record, seconds), &[]).is_empty(), "{record} {seconds}");
    }
}

#[test]
fn addresses_and_stages_of_a_cluster_are_checked_without_repeating_a_password() {
    check(
        "[cluster]\nservers = [\"http://a:1\"]\nstages = [\"stt\", \"llm\"]\n",
        &[("ANTIPHON_CLUSTER__SERVERS", "nats://me:very-secret@a"), ("ANTIPHON_CLUSTER__STAGES", "")],
        r#"2: cluster.servers = ["http://a:1"]: write a list of addresses, such as ["tls://nats.example.org:4222"]
         3: cluster.stages = ["stt", "llm"]: write a list of stt, tts, turn
         environment variable ANTIPHON_CLUSTER__SERVERS: cluster.servers = (not shown): write a list of addresses, such as ["tls://nats.example.org:4222"]
         environment variable ANTIPHON_CLUSTER__STAGES: cluster.stages = "": write a list of stt, tts, turn"#,
    );
}

/// As [`load_text`], for a hub; the problems without the folder.
fn hub_problems(text: &str, env: &[(&str, &str)]) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("my.toml");
    std::fs::write(&path, text).expect("written");
    let env = env.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    match config::load_hub(&Sources { file: Some(path), env, ..Sources::default() }) {
        Ok(_) => Vec::new(),
        Err(error) => {
            let folder = format!("{}/", folder.path().display());
            error.to_string().lines().map(|line| line.replace(&folder, "")).collect()
        }
    }
}

#[test]
fn what_a_hub_of_a_cluster_lacks_is_reported_with_all_other_problems() {
    let found = hub_problems("[cluster]\njetstream = true\n[stt]\nengnie = \"auto\"\n", &[]);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[0].starts_with("my.toml:4: there is no key engnie"), "{found:?}");
    assert!(found[1].starts_with("my.toml:2: cluster.servers: no server is named"), "{found:?}");
    assert!(found[2].starts_with("my.toml:2: cluster.sealing_key: no file is named"), "{found:?}");

    let key = tempfile::NamedTempFile::new().expect("a file");
    let text = "[cluster]\njetstream = true\nservers = [\"nats://127.0.0.1\", \"nats://192.0.2.1\"]\n";
    let env = [("ANTIPHON_CLUSTER__SEALING_KEY", key.path().to_str().expect("text"))];
    let found = hub_problems(text, &env);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("my.toml:3: cluster.servers: 192.0.2.1 is another machine"), "{found:?}");
    let expect = "environment variable ANTIPHON_CLUSTER__SEALING_KEY: cluster.sealing_key: the file";
    assert!(found[1].starts_with(expect) && found[1].contains("holds no sealing key"), "{found:?}");

    std::fs::write(key.path(), antiphon_cluster::SealingKey::generate().encoded()).expect("written");
    let insecure = ("ANTIPHON_CLUSTER__INSECURE", "true");
    assert!(hub_problems(text, &[env[0], insecure]).is_empty());
    // Rejected servers are not missing as well.
    let found = hub_problems("[cluster]\njetstream = true\nservers = [\"x\"]\n", &env);
    assert_eq!(found.len(), 1, "{found:?}");
    // Only a hub needs them.
    assert!(load_text("[cluster]\njetstream = true\n", &[]).is_ok());
}

#[test]
fn a_fallback_model_of_a_stage_takes_another_model_of_that_stage() {
    let text = "[cluster]\nservers = [\"nats://127.0.0.1\"]\nstt_model = \"a\"\nstt_fallback_model = \"a\"\n\
                turn_fallback_model = \"b\"\n";
    let expect = [
        "my.toml:4: cluster.stt_fallback_model: \"a\" is the model of cluster.stt_model: name another one, or none",
        "my.toml:5: cluster.turn_fallback_model: \"b\" is the fallback of a model that is not named: set cluster.turn_model, too",
    ];
    assert_eq!(hub_problems(text, &[]), expect);
    let right = [("ANTIPHON_CLUSTER__STT_MODEL", "c"), ("ANTIPHON_CLUSTER__TURN_MODEL", "a")];
    assert!(hub_problems(text, &right).is_empty());
}

#[test]
fn what_is_no_toml_is_named_with_its_line() {
    check("[llm]\nengine = openai\n", &[], "2: this is no TOML: string values must be quoted, expected literal string");
}

#[test]
fn a_secret_in_the_wrong_place_is_not_repeated() {
    let text = "[llm]\napi_key_env = \"sk-very-secret\"\nbase_url = \"http://me:very-secret@host/v1\"\n\
                [models]\nproxy = \"http://me:very-secret@host:3128\"\n\
                [mcp]\nallowed_servers = [\"https://me:very-secret@host/mcp\"]\n\
                [stt]\nfallback = [{ engine = \"openai\", api_key_env = \"sk-very-secret\" }]\n\
                [server]\npublic_url = \"https://me:very-secret@host\"\n\
                [telephony]\naccounts = [{ kind = \"twilio\", auth_token_env = \"very-secret\" }]\n";
    let said = load_text(text, &[]).expect_err("refused").to_string();
    assert!(said.contains("llm.api_key_env") && said.contains("llm.base_url"), "{said}");
    assert!(said.contains("models.proxy") && said.contains("mcp.allowed_servers"), "{said}");
    assert!(said.contains("server.public_url = (not shown)"), "{said}");
    assert!(said.contains("stt.fallback = (not shown)") && said.contains("telephony.accounts = (not shown)"), "{said}");
    assert!(!said.contains("very-secret"), "{said}");
    let cases = [
        ("LLM__FALLBACK", "{ engine = \"openai\", api_key_env = \"sk-very-secret\" }", "llm.api_key_env = (not shown)"),
        (
            "LLM__FALLBACK",
            "{ engine = \"openai\", base_url = \"http://me:very-secret@host/v1\" }",
            "llm.fallback: llm.base_url = (not shown)",
        ),
        ("LLM__FALLBACK", "{ engine = openai, api_key_env = sk-very-secret }", "llm.fallback = (not shown): write a"),
        (
            "STT__FALLBACK",
            "{ \"engine\": \"openai\", \"api_key_env\": \"sk-very-secret\" }",
            "stt.fallback = (not shown)",
        ),
        ("STT__FALLBACK", "openai", "stt.fallback = \"openai\": write a"),
        ("TELEPHONY__ACCOUNTS", "{ main = { kind = twilio, auth_token_env = very-secret } }", "= (not shown): write a"),
        ("TTS__FALLBACK", "{ engine = \"flite\", hedge_after_ms = 3 }", "a fallback has no hedge_after_ms"),
        ("TTS__FALLBACK", "{ voice = \"slt\" }", "tts.fallback: its engine is missing: set engine"),
    ];
    for (name, text, expect) in cases {
        let name = format!("ANTIPHON_{name}");
        let said = load_text("", &[(name.as_str(), text)]).expect_err("refused").to_string();
        assert!(said.contains(expect) && !said.contains("very-secret"), "{said}");
    }
}

#[test]
fn the_environment_wins_over_the_file_and_options_over_both() {
    let env = [
        ("ANTIPHON_LLM__ENGINE", "openai"),
        ("ANTIPHON_LLM__BASE_URL", "http://127.0.0.1:11434/v1"),
        ("ANTIPHON_TURN__THRESHOLD", "0.25"),
        ("ANTIPHON_SERVER__ALLOWED_HOSTS", "a.example, b.example"),
        ("ANTIPHON_SERVER__ALLOWED_ORIGINS", "[\"https://a.example\"]"),
        ("ANTIPHON_SERVER__TRUSTED_PROXIES", "10.0.0.5,192.168.0.0/16"),
        ("ANTIPHON_CLUSTER__SERVERS", "tls://a.example:4222, nats://127.0.0.1"),
        ("ANTIPHON_CLUSTER__STAGES", "[\"tts\"]"),
        ("ANTIPHON_SESSION__CREATE_RESPONSE", "false"),
        ("ANTIPHON_LOG", "debug"),
        ("HOME", "/"),
    ];
    let config = load_text("[llm]\nmodel = \"m\"\nengine = \"assistant\"\n", &env).expect("loads");
    assert_eq!((config.llm.engine.as_str(), config.llm.model.as_str()), ("openai", "m"));
    assert_eq!(config.turn.threshold, 0.25);
    assert_eq!(config.server.allowed_hosts, ["a.example", "b.example"]);
    assert_eq!(config.server.allowed_origins, ["https://a.example"]);
    assert_eq!(config.server.trusted_proxies, ["10.0.0.5", "192.168.0.0/16"]);
    assert_eq!(config.cluster.servers, ["tls://a.example:4222", "nats://127.0.0.1"]);
    assert_eq!(config.cluster.stages, ["tts"]);
    assert!(!config.session.create_response);

    let env = vec![("ANTIPHON_SERVER__LISTEN".to_owned(), "127.0.0.1:1".to_owned())];
    let options = vec![("server", "listen", "127.0.0.1:2".to_owned())];
    let config = config::load(&Sources { env, options, ..Sources::default() }).expect("loads");
    assert_eq!(config.server.listen, "127.0.0.1:2");
}

#[test]
fn wrong_variables_are_named() {
    check(
        "[turn]\nthreshold = 2\n",
        &[
            ("ANTIPHON_LLM__ENGNIE", "openai"),
            ("ANTIPHON_LLM_ENGINE", "openai"),
            ("ANTIPHON_LMM__ENGINE", "openai"),
            ("ANTIPHON_TTS__SPEED", "fast"),
            ("ANTIPHON_STT__ENGINE", "parrot"),
        ],
        r#"2: turn.threshold = 2: write a number from 0 to 1
         environment variable ANTIPHON_LLM_ENGINE: did you mean ANTIPHON_LLM__ENGINE?
         environment variable ANTIPHON_LLM__ENGNIE: there is no such key; did you mean ANTIPHON_LLM__ENGINE?
         environment variable ANTIPHON_LMM__ENGINE: there is no section [lmm]; did you mean [llm]?
         environment variable ANTIPHON_STT__ENGINE: stt.engine = "parrot": write "auto" or "none" or "whisper" or "transducer" or "openai" or "realtime" or "moshi"
         environment variable ANTIPHON_TTS__SPEED: tts.speed = "fast": write a number from 0.25 to 4"#,
    );
    let options = vec![("server", "listen", "here".to_owned())];
    let said = config::load(&Sources { options, ..Sources::default() }).expect_err("refused").to_string();
    assert!(said.starts_with("option --listen: server.listen = \"here\": write an address"), "{said}");
}

#[test]
fn settings_of_earlier_versions_are_named_with_what_took_their_place() {
    check(
        "[onnx]\nlibrary = \"x\"\n[stt]\nmodel_dir = \"\"\n",
        &[("ANTIPHON_TTS__LANES", "2")],
        "2: onnx.library is onnx.runtime since version 0.2.0: write runtime
         4: stt.model_dir is gone since version 0.2.0: remove it
         environment variable ANTIPHON_TTS__LANES: tts.lanes is tts.replicas since version 0.2.0: write ANTIPHON_TTS__REPLICAS",
    );
    let is_setting = |section: &str, name: &str| config::keys().any(|key| key.section == section && key.name == name);
    for former in FORMER_KEYS {
        assert!(!is_setting(former.section, former.name), "{former:?} is a setting");
        assert!(former.now.is_none_or(|(section, name)| is_setting(section, name)), "{former:?} became no setting");
    }
}

#[test]
fn models_of_the_installation_are_used_where_no_source_names_others() {
    let shipped = |env: &[(&str, &str)]| {
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let installed_models = Some("/usr/share/antiphon/models".into());
        config::load(&Sources { installed_models, env, ..Sources::default() }).expect("valid").models.shipped_dir
    };
    assert_eq!(shipped(&[]), "/usr/share/antiphon/models");
    assert_eq!(shipped(&[("ANTIPHON_MODELS__SHIPPED_DIR", "")]), "");
}

#[test]
fn a_missing_file_is_named() {
    let sources = Sources { file: Some("nowhere/my.toml".into()), ..Sources::default() };
    let error = config::load(&sources).expect_err("refused");
    assert_eq!(error.to_string(), "nowhere/my.toml: cannot be read");
    assert!(std::error::Error::source(&error).is_some());
}

#[test]
fn a_table_of_fields_is_taken_from_a_file_and_from_the_environment() {
    let fields = |text: &str, env: &[(&str, &str)]| load_text(text, env).expect("loads").tts.extra_body;
    let expected = serde_json::json!({"language": "English", "n": 2, "refs": [{"text": "a"}]});
    let expected = expected.as_object().expect("a table").clone();
    let inline = r#"{ language = "English", n = 2, refs = [{ text = "a" }] }"#;
    assert_eq!(fields(&format!("[tts]\nextra_body = {inline}\n"), &[]), expected);
    let section = "[tts.extra_body]\nlanguage = \"English\"\nn = 2\nrefs = [{ text = \"a\" }]\n";
    assert_eq!(fields(section, &[]), expected);
    assert_eq!(fields("", &[("ANTIPHON_TTS__EXTRA_BODY", inline)]), expected);
    check(
        "[tts]\nextra_body = 3\nsample_rate = -1\n",
        &[("ANTIPHON_TTS__EXTRA_BODY", "{ a = ")],
        r#"2: tts.extra_body = 3: write a table, such as { language = "English" }
         3: tts.sample_rate = -1: write a whole number from 0 to 192000 (Hz; 0: 24000)
         environment variable ANTIPHON_TTS__EXTRA_BODY: tts.extra_body = "{ a = ": write a table, such as { language = "English" }"#,
    );
}
