//! A job held against this node's own configuration: the site's policy, and whether the submit host
//! had the same networks and resource sets.
//!
//! The files are read anew for each job, so that a change of the policy needs no restart. A job is judged
//! once, when it is registered; a later vmd goes by the journal.

use std::fmt;
use std::time::Duration;

use muster_config::{LoadError, Trees};
use muster_templates::expand::Names;
use muster_templates::library::Library;
use muster_templates::networks::Networks;
use muster_templates::policy::{Asker, Own, Policy};
use muster_templates::sets::ResourceSets;
use muster_types::api::JobFacts;
use muster_types::ids::shown;
use muster_types::request::{self, ClusterRequest};

use crate::chain::chain;
use crate::host::account;
use crate::journal::Entry;

/// How long files and user database may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// How many reasons are told; more do not help.
const MAX_TOLD: usize = 4;

/// What this node's configuration and user database say, as far as a job needs it.
#[derive(Debug, Clone, Default)]
pub struct SiteView {
    /// What users may do.
    pub policy: Policy,
    /// The site's networks.
    pub networks: Networks,
    /// The site's resource sets.
    pub sets: ResourceSets,
    /// The site's templates.
    pub templates: Library,
    /// Groups of the job's user.
    pub groups: Vec<String>,
    /// Home directory of the job's user.
    pub home: Option<String>,
}

/// Why a job may not run here: one reason or more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reasons(Vec<String>);

impl Reasons {
    fn of(reasons: Vec<String>) -> Result<(), Self> {
        if reasons.is_empty() {
            Ok(())
        } else {
            Err(Self(reasons))
        }
    }
}

impl fmt::Display for Reasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first: Vec<&str> = self.0.iter().take(MAX_TOLD).map(String::as_str).collect();
        f.write_str(&first.join("; also: "))?;
        match self.0.len().saturating_sub(MAX_TOLD) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

impl std::error::Error for Reasons {}

impl SiteView {
    /// Holds the site's policy against a request, whose values are the user's word.
    ///
    /// # Errors
    /// What the user may not have.
    pub fn judge(&self, facts: &JobFacts, request: &ClusterRequest) -> Result<(), Reasons> {
        let partitions = [facts.partition.clone()];
        let asker = Asker {
            user: &facts.user,
            groups: &self.groups,
            account: Some(facts.account.as_deref().unwrap_or_default()),
            partitions: &partitions,
        };
        let names = Names {
            home: self.home.as_deref(),
            user: &facts.user,
            // The user's variables are not known here.
            env: &|_| None,
        };
        let own = Own::by_site(request, &self.templates, &names);
        let refusals = self.policy.judge(request, &asker, &own);
        Reasons::of(refusals.iter().map(ToString::to_string).collect())
    }

    /// Compares the networks and resource sets of a request with those of this node.
    ///
    /// # Errors
    /// What differs.
    pub fn compare(&self, facts: &JobFacts, request: &ClusterRequest) -> Result<(), Reasons> {
        let node = &facts.node;
        let mut reasons = Vec::new();
        for (name, spec) in &request.networks {
            let shown_name = shown(name);
            let Some(own) = self.networks.get(name) else {
                reasons.push(format!(
                    "network '{shown_name}' is not defined on {node}: networks.yaml must be the same on all hosts"
                ));
                continue;
            };
            let mut differences = own.spec.differences(spec);
            // Another type has other keys.
            if own.spec.type_word() != spec.type_word() {
                differences.retain(|d| d.key == "type");
            }
            for difference in differences {
                reasons.push(format!(
                    "network '{shown_name}': {} is {} on {node} and {} on the submit host: networks.yaml must be the same on all hosts",
                    difference.key,
                    shown(&difference.own),
                    shown(&difference.other),
                ));
            }
        }
        for (name, networks) in &request.resource_sets {
            let shown_name = shown(name);
            let same = "resources.yaml must be the same on all hosts";
            match self.sets.get(name) {
                None => reasons.push(format!(
                    "resource set '{shown_name}' is not defined on {node}: {same}"
                )),
                Some(own) if own.networks != *networks => reasons.push(format!(
                    "resource set '{shown_name}': networks are {} on {node} and {} on the submit host: {same}",
                    list(&own.networks),
                    list(networks),
                )),
                Some(_) => {}
            }
        }
        Reasons::of(reasons)
    }
}

fn list(names: &[String]) -> String {
    match names {
        [] => "none".to_owned(),
        names => shown(&names.join(", ")),
    }
}

/// What a job of the journal is to be judged by; none for one that was judged already, whatever the
/// configuration says since.
///
/// # Errors
/// The verdict of a job that was refused, or why this node cannot judge.
pub async fn of_entry(trees: &Trees, entry: &Entry) -> Result<Option<SiteView>, String> {
    if let Some(verdict) = &entry.refused {
        return Err(verdict.clone());
    }
    if entry.releasing || !entry.objects.is_empty() {
        return Ok(None);
    }
    view(trees, &entry.facts, entry.request.as_deref())
        .await
        .map(Some)
}

/// Reads what this node knows, as far as the request needs it.
///
/// # Errors
/// The reason, for which this node is to blame.
async fn view(trees: &Trees, facts: &JobFacts, request: Option<&str>) -> Result<SiteView, String> {
    let node = facts.node.clone();
    let fault = |what: &str| format!("the configuration of node {node} cannot be used: {what}");
    let (trees, facts, request) = (trees.clone(), facts.clone(), request.map(str::to_owned));
    let read = tokio::task::spawn_blocking(move || {
        // What does not parse is told by the plan.
        match request.and_then(|text| request::parse(&text).ok()) {
            Some(request) => read(&trees, &facts, &request),
            None => Ok(SiteView::default()),
        }
    });
    match tokio::time::timeout(DEADLINE, read).await {
        Ok(Ok(read)) => read.map_err(|e| fault(&e)),
        Ok(Err(e)) => Err(fault(&e.to_string())),
        Err(_) => Err(fault(&format!(
            "files and user database did not answer within {} s",
            DEADLINE.as_secs()
        ))),
    }
}

fn read(trees: &Trees, facts: &JobFacts, request: &ClusterRequest) -> Result<SiteView, String> {
    let text = |e: LoadError| one_line(&chain(&e));
    let mut view = SiteView {
        policy: muster_config::policy(trees).map_err(text)?,
        ..SiteView::default()
    };
    if !request.networks.is_empty() || !request.resource_sets.is_empty() {
        view.networks = muster_config::networks(trees).map_err(text)?;
        view.sets = muster_config::resource_sets(trees, &view.networks).map_err(text)?;
    }
    if view.policy.judges_templates() {
        view.templates = muster_config::library(trees).map_err(text)?;
        view.home = account::home(facts.uid)
            .map_err(|e| format!("look up the home of uid {}: {e}", facts.uid))?;
    }
    if view.policy.names_groups() {
        view.groups = account::groups(&facts.user, facts.gid)
            .map_err(|e| format!("look up the groups of user {}: {e}", facts.user))?;
    }
    Ok(view)
}

/// The first mistake of a file, and how many there are.
fn one_line(text: &str) -> String {
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    match lines.count() {
        0 => first.to_owned(),
        more => format!("{first} (and {more} more)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::tests::facts as job_facts;
    use crate::plan::plan;
    use crate::settings::tests::settings;
    use muster_types::request::REQUEST_VERSION;
    use serde_json::{Value, json};
    use std::path::Path;

    const NETWORKS: &str = "nat:\n  type: ethernet\n  settings: {dev-prefix: nat}\n\
                            ib:\n  type: hostib\n  settings: {host-device: mlx5_0}\n";
    const SETS: &str = "lab: {networks: [nat]}\nboth: {networks: [nat, ib]}\n";

    fn facts() -> JobFacts {
        job_facts(7, "n[1-2]", "n2")
    }

    /// A node's configuration.
    fn site(policy: &str, templates: &str) -> (tempfile::TempDir, Trees) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("policy.yaml", policy),
            ("templates.yaml", templates),
            ("networks.yaml", NETWORKS),
            ("resources.yaml", SETS),
        ] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let trees = Trees {
            system: dir.path().to_owned(),
            user: None,
        };
        (dir, trees)
    }

    /// A request as a user may have forged it: `change` works on its JSON.
    fn request(change: impl FnOnce(&mut Value)) -> String {
        let mut json = json!({
            "version": REQUEST_VERSION,
            "definition": "tiny:2",
            "submitter": "salloc",
            "groups": [{ "template": "tiny", "count": 2 }],
            "templates": { "tiny": { "image": { "file": { "path": "/i" } }, "cpus": 1 } },
        });
        change(&mut json);
        json.to_string()
    }

    fn network(name: &str) -> Value {
        let path = "networks.yaml".into();
        let source = muster_templates::source::Source {
            path,
            text: NETWORKS.into(),
            tree: muster_templates::source::Tree::System,
        };
        let networks = Networks::parse(&[source]).unwrap();
        serde_json::to_value(&networks.get(name).unwrap().spec).unwrap()
    }

    fn with_set(json: &mut Value) {
        json["templates"]["tiny"]["resource-set"] = json!("lab");
        json["resource-sets"] = json!({ "lab": ["nat"] });
        json["networks"] = json!({ "nat": network("nat") });
    }

    /// What becomes of a job on a node: its verdict, if it is refused.
    async fn verdict(trees: &Trees, facts: &JobFacts, request: &str) -> Option<String> {
        let view = match view(trees, facts, Some(request)).await {
            Ok(view) => view,
            Err(e) => return Some(e.replace(&trees.system.display().to_string(), "ETC")),
        };
        let settings = settings(Path::new("/x"));
        let plan = plan(facts, Some(request), Some(&view), &settings);
        plan.err().map(|e| e.to_string())
    }

    #[tokio::test]
    async fn who_may_not_have_a_set_is_refused() {
        let policy =
            "resource-sets:\n  lab: {groups: [ib], accounts: [projx], partitions: [main]}\n";
        let (_dir, trees) = site(policy, "tiny: {image: x}\n");
        let mut facts = facts();
        let request = request(with_set);
        facts.user = "no-such-user".into();
        facts.gid = 3_999_999_999;
        let refused = "refused by the site's policy: template 'tiny': resource set 'lab' is for";
        let asker = "(policy.yaml:2); your groups: 3999999999; the job has no account";
        assert_eq!(
            verdict(&trees, &facts, &request).await.unwrap(),
            format!("{refused} group 'ib' or account 'projx' {asker}")
        );
        facts.account = Some("projx".into());
        assert_eq!(verdict(&trees, &facts, &request).await, None);
        facts.partition = "debug".into();
        assert_eq!(
            verdict(&trees, &facts, &request).await.unwrap(),
            format!(
                "{refused} jobs in partition 'main' (policy.yaml:2); the job's partition: debug"
            )
        );
    }

    #[tokio::test]
    async fn forged_templates_are_judged_by_their_values() {
        let policy = "max-vms-per-job: 1\ntemplates: false\n";
        let (_dir, trees) = site(policy, "other: {image: x}\n");
        assert_eq!(
            verdict(&trees, &facts(), &request(|_| {})).await.unwrap(),
            "refused by the site's policy: the job has 2 VMs, at most 1 VM is allowed (policy.yaml:1); also: \
             template 'tiny': it is none of the site's, and only those may be used (policy.yaml:2)"
        );
        let one = |name: &str| {
            let json = request(|json| json["groups"][0]["count"] = json!(1));
            json.replace("tiny", name)
        };
        assert_eq!(verdict(&trees, &facts(), &one("other")).await, None);
        // An image's name.
        let image = |json: &mut Value| {
            json["groups"][0]["count"] = json!(1);
            json["templates"]["tiny"] = json!({ "image": { "file": { "path": "/i" } } });
        };
        assert_eq!(verdict(&trees, &facts(), &request(image)).await, None);
    }

    #[tokio::test]
    async fn networks_and_sets_must_be_those_of_the_submit_host() {
        let (_dir, trees) = site("", "");
        let ask = async |change: &dyn Fn(&mut Value)| {
            let request = request(|json| {
                with_set(json);
                change(json);
            });
            verdict(&trees, &facts(), &request).await
        };
        assert_eq!(ask(&|_| {}).await, None);
        let on_all = "networks.yaml must be the same on all hosts";
        assert_eq!(
            ask(&|json| json["networks"]["nat"]["mtu"] = json!(9000))
                .await
                .unwrap(),
            format!("network 'nat': mtu is 1500 on n2 and 9000 on the submit host: {on_all}")
        );
        assert_eq!(
            ask(&|json| json["networks"]["lan"] = network("nat"))
                .await
                .unwrap(),
            format!("network 'lan' is not defined on n2: {on_all}")
        );
        assert_eq!(
            ask(&|json| json["networks"]["nat"] = network("ib"))
                .await
                .unwrap(),
            format!(
                "network 'nat': type is ethernet on n2 and hostib on the submit host: {on_all}"
            )
        );
        let all = |json: &mut Value| {
            for (key, value) in [("mtu", json!(9000)), ("domain-name", json!("x.y"))] {
                json["networks"]["nat"][key] = value;
            }
            for i in 0..5 {
                json["networks"][format!("lan{i}")] = network("nat");
            }
        };
        let told = ask(&all).await.unwrap();
        assert!(
            told.contains(&format!("{on_all}; also: network 'lan1'")),
            "{told}"
        );
        assert!(told.ends_with("; and 3 more"), "{told}");
        let on_all = "resources.yaml must be the same on all hosts";
        assert_eq!(
            ask(&|json| json["resource-sets"]["lab"] = json!([]))
                .await
                .unwrap(),
            format!(
                "resource set 'lab': networks are nat on n2 and none on the submit host: {on_all}"
            )
        );
        assert_eq!(
            ask(&|json| json["resource-sets"]["mine"] = json!(["nat"]))
                .await
                .unwrap(),
            format!("resource set 'mine' is not defined on n2: {on_all}")
        );
    }

    #[tokio::test]
    async fn a_bad_file_is_the_nodes_fault() {
        let (dir, trees) = site("templates: maybe\nx: 1\n", "");
        let fault = "the configuration of node n2 cannot be used: ETC";
        let request = request(|_| {});
        let told = verdict(&trees, &facts(), &request).await.unwrap();
        assert!(
            told.starts_with(&format!(
                "{fault}/policy.yaml:1:12: templates: must be true"
            )),
            "{told}"
        );
        assert!(told.ends_with("(and 1 more)"), "{told}");
        std::fs::remove_file(dir.path().join("policy.yaml")).unwrap();
        // A job without networks does not need them.
        std::fs::write(dir.path().join("networks.yaml"), "nat: 1\n").unwrap();
        assert_eq!(verdict(&trees, &facts(), &request).await, None);
        let told = verdict(&trees, &facts(), &self::request(with_set)).await;
        let told = told.unwrap();
        assert!(
            told.starts_with(&format!("{fault}/networks.yaml:1:")),
            "{told}"
        );
    }

    #[tokio::test]
    async fn what_does_not_parse_is_left_to_the_plan() {
        let (_dir, trees) = site("x: 1\n", "");
        assert!(view(&trees, &facts(), Some("{")).await.is_ok());
        assert!(view(&trees, &facts(), None).await.is_ok());
    }
}
