//! Plans as a whole: more users take more, objectives that cannot be kept are named, the output stays as it is.

use super::*;

fn demand(users: u64, objective_ms: f64) -> Demand {
    Demand { users, peak: 0.1, objective_ms, share: 0.95, spare: 1 }
}

fn planned(name: &str, demand: Demand) -> CapacityPlan {
    plan(Profile::built_in(name).expect("built in"), demand, None).expect("it can be planned")
}

fn stage<'a>(plan: &'a CapacityPlan, name: &str) -> &'a StageSize {
    plan.sized.stages.iter().find(|stage| stage.stage == name).expect("all are there")
}

#[test]
fn more_users_take_more_of_everything_and_keep_the_objective() {
    let plans = [1_000, 10_000, 50_000].map(|users| planned("gpu", demand(users, 800.0)));
    for plan in &plans {
        assert!(plan.is_feasible(), "{}", plan.verdict());
        let latency = plan.sized.latency.expect("it is served");
        assert!(latency.p50_ms < latency.p95_ms && latency.p95_ms <= 800.0 && latency.p95_ms <= latency.p99_ms);
        assert_eq!(plan.sized.nats_servers, 3);
    }
    for pair in plans.windows(2) {
        assert!(pair[0].sized.hubs.hubs < pair[1].sized.hubs.hubs);
        for name in ["stt", "llm", "tts"] {
            assert!(stage(&pair[0], name).machines < stage(&pair[1], name).machines, "{name}");
        }
    }
    let hubs = &plans[2].sized.hubs;
    assert!(hubs.max_sessions as usize * (hubs.hubs - hubs.spare) >= 5_000, "the rest holds all sessions");
}

#[test]
fn a_tighter_objective_never_takes_fewer_machines() {
    let machines = |objective_ms: f64| {
        let plan = planned("gpu", demand(10_000, objective_ms));
        plan.is_feasible().then(|| plan.sized.stages.iter().map(|stage| stage.machines).sum::<usize>())
    };
    let counts: Vec<_> = [1_500.0, 1_000.0, 800.0, 700.0].into_iter().filter_map(machines).collect();
    assert!(counts.len() > 1 && counts.windows(2).all(|pair| pair[0] <= pair[1]), "{counts:?}");
}

#[test]
fn a_billion_users_are_so_many_equal_parts() {
    // Without the search for more instances, which takes seconds for a part of this size.
    let of = |users: u64| planned("gpu", demand(users, 400.0)).sized;
    let one = of(500_000);
    let all = of(1_000_000_000);
    assert_eq!((one.sessions, all.sessions), (50_000, 100_000_000));
    assert_eq!(all.hubs.hubs, 2_000 * one.hubs.hubs);
    assert_eq!(all.hubs.max_sessions, one.hubs.max_sessions);
    for (one, all) in one.stages.iter().zip(&all.stages) {
        assert_eq!((all.machines, all.spare), (2_000 * one.machines, 2_000 * one.spare), "{}", one.stage);
    }
    assert_eq!(all.clusters, 2_000 * one.clusters);
    assert_eq!((one.parts, all.parts), (1, 2_000));
}

#[test]
fn several_clusters_say_why_and_what_is_not_counted() {
    let lines = |clusters: usize, parts: usize| {
        let mut plan = planned("gpu", demand(1_000, 400.0));
        plan.sized.clusters = clusters;
        plan.sized.parts = parts;
        let text = plan.text();
        let line = |name: &str| text.lines().find(|line| line.starts_with(name)).map(str::to_owned);
        (line("nats").expect("it has workers"), line("clusters"))
    };
    let of_one = "; one knows 1,024 workers and 256 hubs: add NATS servers and spare machines for";
    let of_parts = "; the plan is 2 equal parts of at most 50,000 sessions";
    assert_eq!(lines(1, 1).1, None);
    assert_eq!(lines(2, 1).1, Some(format!("clusters: 2{of_one} 1 of them")));
    assert_eq!(lines(2, 2).1, Some(format!("clusters: 2{of_parts}")));
    assert_eq!(lines(4, 2).1, Some(format!("clusters: 4{of_parts}{of_one} 2 of them")));
    assert!(lines(4, 2).0.starts_with("nats          3      2  "), "{}", lines(4, 2).0);
}

#[test]
fn the_files_of_several_clusters_name_the_servers_of_one() {
    let mut plan = planned("gpu", demand(1_000, 400.0));
    let of_two = "# In each of 2 clusters";
    let is_of_two = |plan: &CapacityPlan| plan.files().iter().all(|file| file.text.contains(of_two));
    assert!(!is_of_two(&plan));
    plan.sized.clusters = 2;
    plan.sized.parts = 2;
    plan.sized.nats_servers = 6;
    assert!(is_of_two(&plan));
    for file in plan.files() {
        assert!(file.text.contains("nats-3.") && !file.text.contains("nats-4."), "{}", file.text);
    }
}

#[test]
fn a_large_machine_has_no_more_instances_than_a_worker_may_have() {
    let mut profile = Profile::built_in("processor").expect("built in");
    let decoders_per_machine = |profile: &Profile| {
        let whole = plan(profile.clone(), demand(1_000, 2_500.0), None).expect("it can be planned");
        let stt = stage(&whole, "stt");
        let decoders = stt.instances.expect("on workers") / stt.machines;
        let file = whole.files().into_iter().find(|file| file.name == "worker-stt.toml").expect("a file");
        (decoders, file.text.lines().find(|line| line.starts_with("decoders")).map(str::to_owned))
    };
    assert_eq!(decoders_per_machine(&profile), (8, Some("decoders = 8".to_owned())));
    profile.machines.insert("cpu".into(), Machine { cores: 256.0, memory_gib: 512.0, accelerators: 0.0 });
    assert_eq!(decoders_per_machine(&profile), (64, Some("decoders = 64".to_owned())));
}

#[test]
fn a_stage_alone_takes_no_more_than_in_a_whole_plan() {
    let profile = || Profile::built_in("gpu").expect("built in");
    let alone = |name: &str, users: u64| plan_stage(profile(), demand(users, 800.0), None, name).expect("it is sized");
    let whole = planned("gpu", demand(10_000, 800.0));
    for name in ["stt", "llm", "tts"] {
        let plan = alone(name, 10_000);
        let own = &plan.sized.stage;
        let shared = stage(&whole, name);
        assert_eq!((own.stage, own.spare), (name, 1));
        assert!(plan.is_feasible() && own.machines <= shared.machines && own.utilization <= 0.85, "{name}: {own:?}");
        assert!(plan.sized.latency.expect("served").p95_ms <= 800.0, "{name}");
        let text = plan.text();
        assert!(text.contains(&format!("only {name}")) && !text.contains("hub   "), "{text}");
        assert_eq!(plan.json()["plan"]["stage"]["machines"], own.machines);
    }
    let one = alone("tts", 500_000);
    let all = alone("tts", 1_000_000);
    assert_eq!(all.sized.stage.machines, 2 * one.sized.stage.machines);
    let refused = |profile: &str, stage: &str| {
        let profile = Profile::built_in(profile).expect("built in");
        plan_stage(profile, demand(1_000, 800.0), None, stage).expect_err("nothing to size").to_string()
    };
    assert!(refused("processor", "llm").contains("llm is a server of others"));
    assert!(refused("gpu", "vad").contains("they are stt, llm and tts"));
    let impossible = plan_stage(profile(), demand(1_000, 400.0), None, "stt").expect("a plan");
    assert!(!impossible.is_feasible() && impossible.text().contains("INFEASIBLE"));
}

/// The page whose tables are checked.
fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operating/sizing.md");
    std::fs::read_to_string(path).expect("the page is there")
}

/// 12345 as 12,345.
fn thousands(number: usize) -> String {
    match number {
        0..1_000 => number.to_string(),
        _ => format!("{},{:03}", thousands(number / 1_000), number % 1_000),
    }
}

/// GPUs that a server of S1-mini names for these users, and those of the plan by its rates.
#[test]
fn another_servers_rates_on_a10g_take_more_gpus_than_its_table_says() {
    let page = page();
    for (users, named, expected) in [(1_000, 3, 4), (10_000, 30, 34), (50_000, 150, 167)] {
        let profile = Profile::built_in("s1-mini-a10g").expect("built in");
        let voice = profile.tts.clone();
        let demand = Demand { users, peak: 1.0, objective_ms: 15_000.0, share: 0.95, spare: 0 };
        let plan = plan_stage(profile, demand, None, "tts").expect("it is sized");
        assert!(plan.is_feasible());
        let stage = &plan.sized.stage;
        assert_eq!(stage.machines, expected, "{users} users");
        let requests_a_minute = users / 5;
        let theirs = queueing::solve(&voice, named, requests_a_minute as f64 / 60.0, users as usize);
        let theirs = theirs.expect("they serve it");
        assert!(theirs.utilization > MAX_UTILIZATION, "{named} GPUs: {}", theirs.utilization);
        let row = format!(
            "| {} | {} | {named} | {:.0} %, {:.0} % | {expected} | {:.0} %, {} ms |",
            thousands(users as usize),
            thousands(requests_a_minute as usize),
            theirs.utilization * 100.0,
            theirs.queue.probability * 100.0,
            stage.utilization * 100.0,
            thousands(plan.sized.latency.expect("served").p95_ms.round() as usize)
        );
        assert!(page.contains(&row), "docs/operating/sizing.md lacks: {row}");
    }
}

#[test]
fn the_page_has_the_known_cards_and_what_they_are_estimated_to_serve() {
    let page = page();
    let mut missing = Vec::new();
    for card in CARDS {
        let profile = on_card(Profile::built_in("gpu").expect("built in"), &card).expect("it fits");
        let plan = plan(profile, demand(1_000, 1_200.0), None).expect("it is sized");
        let counts: Vec<_> = plan.sized.stages.iter().map(|stage| stage.machines.to_string()).collect();
        let estimate = match plan.sized.latency {
            Some(latency) if plan.is_feasible() => {
                format!("{} | {} ms", counts.join(", "), thousands(latency.p95_ms.round() as usize))
            }
            _ => "not in 1,200 ms | -".to_owned(),
        };
        let Card { name, memory_gb, bandwidth_gb_s, fp16_tflops } = card;
        let bandwidth = thousands(bandwidth_gb_s as usize);
        let row = format!("| {name} | {memory_gb} GB | {bandwidth} GB/s | {fp16_tflops} TFLOPS | {estimate} |");
        if !page.contains(&row) {
            missing.push(row);
        }
    }
    assert!(missing.is_empty(), "docs/operating/sizing.md lacks:\n{}", missing.join("\n"));
}

#[test]
fn an_objective_that_cannot_be_kept_names_what_prevents_it() {
    let of = |plan: &CapacityPlan| match &plan.sized.verdict {
        Verdict::Infeasible { part, reason } => (*part, reason.clone()),
        Verdict::Feasible => panic!("it is feasible"),
    };
    let slow = planned("processor", demand(1_000, 1_000.0));
    let (part, reason) = of(&slow);
    assert_eq!(part, "stt", "{reason}");
    assert!(reason.contains("above the objective of 1000 ms"), "{reason}");
    assert!(slow.text().contains("INFEASIBLE") && slow.json()["feasible"] == false);
    let (part, _) = of(&planned("gpu", demand(1_000, 400.0)));
    assert_eq!(part, "the wait for the end of the turn");
    let later = planned("processor", demand(1_000, 3_000.0));
    assert!(later.is_feasible(), "{}", later.verdict());
}

#[test]
fn a_machine_that_is_too_small_is_named() {
    let mut profile = Profile::built_in("gpu").expect("built in");
    profile.machines.get_mut("gpu").expect("named").accelerators = 0.0;
    let error = plan(profile, demand(1_000, 800.0), None).expect_err("no GPU").to_string();
    assert!(error.contains("\"gpu\" is too small for an instance of Whisper"), "{error}");
}

const PRICES: &str = r#"
currency = "EUR"
[machines]
hub = { cores = 8, memory_gib = 16, price_per_hour = 0.25 }
nats = { cores = 2, memory_gib = 4, price_per_hour = 0.05 }
gpu = { cores = 16, memory_gib = 64, accelerators = 2, price_per_hour = 3.5 }
"#;

#[test]
fn prices_are_added_up_and_replace_the_machines() {
    let prices = Prices::parse(PRICES).expect("a table");
    let plan =
        plan(Profile::built_in("gpu").expect("built in"), demand(10_000, 800.0), Some(&prices)).expect("planned");
    let cost = plan.cost.as_ref().expect("prices were given");
    let gpus: usize = plan.sized.stages.iter().map(|stage| stage.machines).sum();
    let expect = plan.sized.hubs.hubs as f64 * 0.25 + 3.0 * 0.05 + gpus as f64 * 3.5;
    assert!((cost.per_hour - expect).abs() < 1e-9, "{cost:?}");
    assert_eq!(stage(&plan, "tts").instances.map(|n| n % 2), Some(0), "two on a machine, spare ones included");
    assert!(plan.text().contains("EUR an hour"));
    for (text, says) in [
        ("currency = 1", "the price table: invalid type"),
        ("currency = \"EUR\"\nmachines = {x = {cores = 1, memory_gib = 1, price_per_hour = -1}}", "must be positive"),
    ] {
        assert!(Prices::parse(text).expect_err("wrong").to_string().contains(says));
    }
    let partly = Prices { machines: Default::default(), ..prices };
    let error = super::plan(Profile::built_in("gpu").expect("built in"), demand(1, 800.0), Some(&partly));
    assert!(error.expect_err("no price").to_string().contains("is missing"));
}

#[test]
fn the_output_stays_as_it_is() {
    let text = planned("gpu", demand(10_000, 800.0)).text();
    let golden = include_str!("golden.txt");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/golden.txt");
        std::fs::write(path, text + "\n").expect("written");
    } else {
        assert_eq!(text.trim_end(), golden.trim_end(), "UPDATE_EXPECT=1 writes it again");
    }
}
