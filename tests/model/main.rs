//! Explores the model.

fn main() {
    for variant in leasehold_model::variants::variants(std::env::args().nth(1).unwrap().parse().unwrap()) {
        let mut rules = leasehold_model::rules::Rules::KEPT;
        let args: Vec<String> = std::env::args().collect();
        let arg = |s: &str| args.iter().any(|a| a == s);
        if arg("now") { rules.orphans_are_confirmed = false; rules.numbers_outlive_a_restart = false; rules.only_the_operator_lists = false; }
        if let Some(f)=std::env::var("V").ok() && !f.split(',').any(|x| x==variant.name) {continue}
        println!("{}", variant.name);
        let o = leasehold_model::check::explore(&variant, rules, None);
        println!("{} unique {} depth {} {:?}", o.states, o.unique, o.depth, o.took);
        for (n, s) in &o.broken { println!("BROKEN {n}"); for s in s { println!("    {s}"); } }
        println!("{:?} {:?}", o.impossible, o.happened.iter().filter(|x| *x.1==0).map(|x| x.0).collect::<Vec<_>>());
    }
}
