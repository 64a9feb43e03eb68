//! Limits by key and address, and what hubs report to each other.

use super::*;
use crate::config::KeyLimits;
use antiphon_session::SessionLimits;
use antiphon_types::Samples;
use std::net::Ipv4Addr;

fn limits(config: &str, keys: &Keys) -> Limits {
    Limits::new(toml::from_str(config).expect("settings"), keys)
}

fn client(address: Ipv4Addr) -> Client {
    Client { peer: address.into(), address: address.into(), is_shared: false, is_secure: false, is_forwarded: false }
}

const EVE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const BOB: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

#[tokio::test(start_paused = true)]
async fn an_address_that_is_over_its_limit_hinders_no_other() {
    let limits = limits("address_requests_per_minute = 2\nrequests_per_minute = 0", &Keys::default());
    let eve = limits.consumer(None, client(EVE));
    let bob = limits.consumer(None, client(BOB));
    assert_eq!((eve.take(Resource::Requests, 1), eve.take(Resource::Requests, 1)), (Ok(()), Ok(())));
    let used_up = eve.take(Resource::Requests, 1).expect_err("used up");
    assert_eq!((used_up.of, used_up.wait), (Whose::Address, Duration::from_secs(30)));
    assert_eq!(used_up.setting(), "limits.address_requests_per_minute");
    assert_eq!(bob.take(Resource::Requests, 1), Ok(()));
    tokio::time::advance(Duration::from_secs(30)).await;
    assert_eq!(limits.consumer(None, client(EVE)).take(Resource::Requests, 1), Ok(()));
    let here = client(Ipv4Addr::LOCALHOST);
    let proxy = Client { is_shared: true, ..client(EVE) };
    for of_many in [here, proxy] {
        let consumer = limits.consumer(None, of_many);
        assert!((0..9).all(|_| consumer.take(Resource::Requests, 1).is_ok()), "{of_many:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_table_of_addresses_is_bounded_and_keeps_who_used_most() {
    let limits = limits("address_requests_per_minute = 5", &Keys::default());
    let spend = |address: u32, n: u64| {
        let consumer = limits.consumer(None, client(Ipv4Addr::from_bits(0x0a00_0000 + address)));
        consumer.spend(Resource::Requests, n);
    };
    spend(0, 5);
    let held = limits.consumer(None, client(BOB));
    held.spend(Resource::Requests, 1);
    for n in 1..MAX_ADDRESSES as u32 + 500 {
        spend(n, 2);
    }
    assert_eq!(limits.addresses.lock().unwrap().len(), MAX_ADDRESSES);
    assert!(limits.consumer(None, client(Ipv4Addr::from_bits(0x0a00_0000))).check(Resource::Requests).is_err());
    held.spend(Resource::Requests, 4);
    assert!(limits.consumer(None, client(BOB)).check(Resource::Requests).is_err(), "a session holds it");
    tokio::time::advance(Duration::from_secs(60)).await;
    limits.consumer(None, client(EVE));
    assert_eq!(limits.addresses.lock().unwrap().len(), 2, "those that are full again go at once");
}

#[tokio::test(start_paused = true)]
async fn a_reload_keeps_what_was_used_and_takes_other_limits() {
    let keys = Keys::of(&["one", "two"]);
    let limits = limits("requests_per_minute = 10", &keys);
    let id = keys.find("one");
    let one = limits.consumer(id, client(EVE));
    assert!((0..10).all(|_| one.take(Resource::Requests, 1).is_ok()) && one.check(Resource::Requests).is_err());
    one.count(Count::Jobs, 4);
    let own = KeyLimits { requests_per_minute: Some(20), ..KeyLimits::default() };
    limits.replace(&Keys::of(&["one"]).limited("one", own));
    assert!(one.check(Resource::Requests).is_err(), "the whole bucket is used, whatever it holds");
    tokio::time::advance(Duration::from_secs(3)).await;
    assert_eq!((one.take(Resource::Requests, 1), one.level(Resource::Requests).unwrap().limit), (Ok(()), 20));
    limits.replace(&Keys::of(&["two"]));
    let text = limits.metrics();
    assert!(text.contains("antiphon_key_jobs_total{key=\"other\"} 4\n"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn metrics_name_a_bounded_number_of_keys() {
    let names: Vec<String> = (0..200).map(|n| format!("key-number-{n:03}")).collect();
    let keys = Keys::of(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let limits = limits("", &keys);
    for name in &names {
        limits.consumer(keys.find(name), client(EVE)).count(Count::Requests, 1);
    }
    let text = limits.metrics();
    let requests: Vec<&str> = text.lines().filter(|line| line.starts_with("antiphon_key_requests_total{")).collect();
    assert_eq!(requests.len(), MAX_LABELS + 1);
    let sum: u64 = requests.iter().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(sum, 200, "none is left out");
    assert!(!text.contains("key-number"), "a key is no name");
}

#[tokio::test(start_paused = true)]
async fn a_counter_of_the_metrics_never_falls() {
    let names: Vec<String> = (0..200).map(|n| format!("key-number-{n:03}")).collect();
    let keys = Keys::of(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let limits = limits("", &keys);
    let mut before = HashMap::new();
    for round in 0..20 {
        for (n, name) in names.iter().enumerate() {
            // Another part of them asks in each round.
            let consumer = limits.consumer(keys.find(name), client(EVE));
            consumer.count(Count::Requests, if n % 20 == round { 10_000 } else { u64::from(n < 10 * round) });
        }
        let text = limits.metrics();
        for line in text.lines().filter(|line| line.starts_with("antiphon_key_requests_total{")) {
            let (of, value) = line.rsplit_once(' ').unwrap();
            let value: u64 = value.parse().unwrap();
            let last = before.insert(of.to_owned(), value).unwrap_or(0);
            assert!(value >= last, "{of}: {last}, then {value}");
        }
    }
    assert_eq!(before.len(), MAX_LABELS + 1, "{before:?}");
}

#[tokio::test(start_paused = true)]
async fn requests_at_once_are_charged_at_once_and_given_back_where_they_fail() {
    let keys = Keys::of(&["one"]);
    let limits = limits("characters_per_minute = 10", &keys);
    let owner = keys.find("one");
    let eve = client(EVE);
    let spender = Spender { consumer: limits.consumer(owner, eve), client: eve, owner };
    let mut charge = spender.charge(Resource::Characters, Count::Characters, 30);
    assert!(spender.consumer.check(Resource::Characters).is_err(), "the next one waits");
    charge.waive();
    drop(charge);
    assert!(spender.consumer.check(Resource::Characters).is_ok());
    assert!(limits.unreported().is_empty());
    drop(spender.charge(Resource::Characters, Count::Characters, 9));
    let text = limits.metrics();
    assert!(text.contains("antiphon_key_characters_total{key=\"key_"), "{text}");
    assert_eq!(serde_json::to_value(limits.usage(Some(owner))).unwrap()[0]["total"]["characters"], 9);
}

#[tokio::test(start_paused = true)]
async fn a_charge_is_raised_where_a_request_costs_more() {
    let keys = Keys::of(&["one"]);
    let limits = limits("characters_per_minute = 10", &keys);
    let owner = keys.find("one");
    let eve = client(EVE);
    let spender = Spender { consumer: limits.consumer(owner, eve), client: eve, owner };
    let mut charge = spender.charge(Resource::Characters, Count::Characters, 5);
    charge.at_least(20);
    charge.waive();
    drop(charge);
    let mut charge = spender.charge(Resource::Characters, Count::Characters, 5);
    charge.at_least(3);
    assert!(spender.consumer.check(Resource::Characters).is_ok(), "it was given back, and 5 are left");
    charge.at_least(10);
    assert!(spender.consumer.check(Resource::Characters).is_err(), "they are used up");
    drop(charge);
    assert_eq!(serde_json::to_value(limits.usage(Some(owner))).unwrap()[0]["total"]["characters"], 10);
}

#[tokio::test(start_paused = true)]
async fn hubs_take_from_each_other_what_a_key_used() {
    let keys = Keys::of(&["one"]);
    let [here, there] = [(); 2].map(|()| limits("requests_per_minute = 60\njobs_per_minute = 0", &keys));
    let id = keys.find("one");
    let eve = client(EVE);
    let at_one = here.consumer(id, eve);
    let at_other = there.consumer(id, eve);
    assert!((0..60).all(|_| at_one.take(Resource::Requests, 1).is_ok()));
    at_one.spend(Resource::Jobs, 9);
    assert!((0..60).all(|_| at_other.take(Resource::Requests, 1).is_ok()), "not told yet");
    let unreported = here.unreported();
    assert_eq!(unreported.len(), 1, "without a limit there is nothing to tell: {unreported:?}");
    there.take_consumed(&unreported, |text| id.filter(|id| id.to_string() == text));
    assert!(here.unreported().is_empty(), "once");
    tokio::time::advance(Duration::from_secs(60)).await;
    assert!(at_other.check(Resource::Requests).is_err(), "what the other hub granted is paid back");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(at_other.check(Resource::Requests).is_ok());
}

#[tokio::test(start_paused = true)]
async fn each_setting_limits_its_own_resource_of_its_own_holder() {
    let keys = Keys::of(&["one"]);
    for (prefix, of) in [("", Whose::Key), ("address_", Whose::Address)] {
        for limited in Resource::ALL {
            let setting = format!("{prefix}{} = 7", limited.setting());
            let limits = limits(&setting, &keys);
            let consumer = limits.consumer(keys.find("one"), client(EVE));
            for resource in Resource::ALL {
                assert_eq!(consumer.take(resource, 7 * resource.scale()), Ok(()), "{setting}: {resource:?}");
                let used_up = consumer.check(resource).err().map(|used_up| used_up.of);
                assert_eq!(used_up, (resource == limited).then_some(of), "{setting}: {resource:?}");
            }
        }
    }
    let session = |setting: &str| {
        let limits = limits(setting, &keys);
        limits.session(limits.consumer(keys.find("one"), client(EVE)), |_| {})
    };
    for (setting, is_refused) in [("session_responses_per_minute = 7", true), ("", false)] {
        let session = session(setting);
        (0..7).for_each(|_| session.response_begun());
        assert_eq!(session.may_respond().is_err(), is_refused, "{setting}");
    }
    for (setting, is_behind) in [("session_audio_seconds_per_minute = 7", true), ("", false)] {
        let wait = session(setting).audio_received(Samples(8 * 16_000));
        assert_eq!(!wait.is_zero(), is_behind, "{setting}");
    }
    for (setting, limit) in [("session_tokens_per_minute = 7", 7), ("", 5_000_000)] {
        let level = session(setting).level(Resource::Tokens).expect("a limit");
        assert_eq!(level.limit, limit, "{setting}");
    }
    let session = session("session_tokens_per_minute = 7");
    session.speculation_dropped(6);
    assert!(session.may_respond().is_ok());
    session.speculation_dropped(1);
    assert!(session.may_respond().is_err(), "what was dropped was read");
}
