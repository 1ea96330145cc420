//! What the plugin does with the configuration when a job is submitted, timed: `submission SYSTEM USER DEFINITION` prints a line
//! `MICROSECONDS STAGE` for each stage. Without arguments it ends at once. `cargo xtask bench config` runs it.
#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use muster_config::{Trees, UserFiles};
use muster_templates::expand::Names;
use muster_templates::policy::{Asker, Own};
use muster_templates::submit::{self, Options, Site, Wish};
use muster_types::request::Submitter;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [system, user, definition] = arguments.as_slice() else {
        return Ok(());
    };
    let mut stage = Instant::now();
    let mut done = |name: &str| {
        println!("{} {name}", stage.elapsed().as_micros());
        stage = Instant::now();
    };
    let trees = Trees {
        system: Path::new(system).to_owned(),
        user: Some(Path::new(user).to_owned()),
    };
    let names = Names {
        home: Some("/"),
        user: "alice",
        env: &|_| None,
    };
    let library = muster_config::library(&trees)?;
    done("1 templates");
    let networks = muster_config::networks(&trees)?;
    let sets = muster_config::resource_sets(&trees, &networks)?;
    done("2 networks and resource sets");
    let catalog = muster_config::catalog(&muster_config::repos(&trees, &names)?);
    done("3 image repositories");
    let site = Site {
        library: &library,
        sets: &sets,
        networks: &networks,
        catalog: &catalog,
    };
    let wish = Wish {
        definition,
        submitter: Submitter::Salloc,
        options: &Options::default(),
    };
    let taken = submit::resolve(&wish, &site, &names, &UserFiles)?;
    taken.request.to_json()?;
    done("4 definition");
    let policy = muster_config::policy(&trees)?;
    let asker = Asker {
        user: "alice",
        groups: &[],
        account: None,
        partitions: &[],
    };
    let own = Own::by_library(&taken.request, &library);
    let refusals = policy.judge(&taken.request, &asker, &own);
    if let Some(refusal) = refusals.first() {
        return Err(refusal.to_string().into());
    }
    done("5 policy");
    Ok(())
}
