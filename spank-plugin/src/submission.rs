//! What a submission is known to be on the submit host, and the site's policy held against it. A node's
//! vmd judges the job again, by what Slurm says of it.

use std::ffi::CString;

use muster_config::Trees;
use muster_templates::library::Library;
use muster_templates::policy::{Asker, Own};
use muster_types::request::ClusterRequest;
use nix::unistd::{Gid, Group, getgrouplist};

use crate::account::{self, Account};
use crate::command_options;
use crate::verdict::chain;

/// What is known of the job that is being submitted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SubmissionFacts {
    /// The user.
    pub user: String,
    /// The user's groups.
    pub groups: Vec<String>,
    /// The account that was given; none: the user's default, which Slurm's controller knows.
    pub account: Option<String>,
    /// The partitions that were given, of which Slurm takes one; none at all: the default.
    pub partitions: Vec<String>,
}

impl SubmissionFacts {
    /// Who asks, for the policy.
    #[must_use]
    pub fn asker(&self) -> Asker<'_> {
        Asker {
            user: &self.user,
            groups: &self.groups,
            account: self.account.as_deref(),
            partitions: &self.partitions,
        }
    }
}

/// The facts of the running salloc, sbatch or srun. `with_groups`: the user's groups are wanted, for
/// which the user database is asked.
#[must_use]
pub fn asker_facts(with_groups: bool) -> SubmissionFacts {
    let account = account::own();
    let groups = account.as_ref().filter(|_| with_groups).map(groups);
    SubmissionFacts {
        user: account.map(|a| a.name).unwrap_or_default(),
        groups: groups.unwrap_or_default(),
        account: command_options::get(c"account"),
        partitions: command_options::get(c"partition").map_or_else(Vec::new, |list| split(&list)),
    }
}

/// Holds the site's policy against a request that was made from `library`. The facts are asked for if
/// the site has a policy.
///
/// # Errors
/// The policy cannot be read, or all that it refuses, a line each.
pub fn check_policy(
    trees: &Trees,
    request: &ClusterRequest,
    library: &Library,
    facts: &dyn Fn(bool) -> SubmissionFacts,
) -> Result<(), String> {
    let policy = muster_config::policy(trees).map_err(|e| chain(&e))?;
    if policy.allows_everything() {
        return Ok(());
    }
    let facts = facts(policy.names_groups());
    let own = Own::by_library(request, library);
    let refusals = policy.judge(request, &facts.asker(), &own);
    let lines: Vec<String> = refusals.iter().map(ToString::to_string).collect();
    if lines.is_empty() {
        Ok(())
    } else {
        Err(lines.join("\n"))
    }
}

/// The groups of an account by name (getgrouplist(3)); one without a name by its number.
fn groups(account: &Account) -> Vec<String> {
    let primary = Gid::from_raw(account.gid);
    let Ok(name) = CString::new(account.name.as_str()) else {
        return Vec::new();
    };
    let gids = getgrouplist(&name, primary).unwrap_or_else(|_| vec![primary]);
    let name_of = |gid: Gid| match Group::from_gid(gid) {
        Ok(Some(group)) => group.name,
        _ => gid.to_string(),
    };
    gids.into_iter().map(name_of).collect()
}

/// The partitions of `-p a,b`.
fn split(list: &str) -> Vec<String> {
    let names = list.split(',').map(str::trim).filter(|p| !p.is_empty());
    names.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_types::image::ImageRef;
    use muster_types::request::{self, REQUEST_VERSION};
    use std::fs;

    fn facts(groups: &[&str], partitions: &str) -> SubmissionFacts {
        SubmissionFacts {
            user: "alice".into(),
            groups: groups.iter().map(|g| (*g).to_owned()).collect(),
            account: None,
            partitions: split(partitions),
        }
    }

    fn request() -> ClusterRequest {
        let image = serde_json::to_value(ImageRef::File { path: "/i".into() }).unwrap();
        let json = serde_json::json!({
            "version": REQUEST_VERSION, "definition": "tiny:3", "submitter": "salloc",
            "groups": [{ "template": "tiny", "count": 3 }],
            "templates": { "tiny": { "image": image, "resource-set": "ib" } },
            "resource-sets": { "ib": [] },
        });
        request::parse(&json.to_string()).unwrap()
    }

    #[test]
    fn what_the_policy_refuses_is_told_line_by_line() {
        let etc = tempfile::tempdir().unwrap();
        let trees = Trees {
            system: etc.path().to_owned(),
            user: None,
        };
        let library = Library::default();
        let ask =
            |facts: SubmissionFacts| check_policy(&trees, &request(), &library, &|_| facts.clone());
        let never = |_| -> SubmissionFacts { panic!("nobody needs to know") };
        assert_eq!(check_policy(&trees, &request(), &library, &never), Ok(()));
        let policy =
            "max-vms-per-job: 2\nresource-sets:\n  ib: {groups: [ib], partitions: [a, b]}\n";
        fs::write(etc.path().join("policy.yaml"), policy).unwrap();
        let vms = "the job has 3 VMs, at most 2 VMs are allowed (policy.yaml:1)";
        let set = "template 'tiny': resource set 'ib' is for";
        assert_eq!(ask(facts(&["ib"], "a,c")).unwrap_err(), vms);
        assert_eq!(ask(facts(&["ib"], "")).unwrap_err(), vms);
        assert_eq!(
            ask(facts(&["users"], "a")).unwrap_err(),
            format!("{vms}\n{set} group 'ib' (policy.yaml:3); your groups: users")
        );
        assert_eq!(
            ask(facts(&["ib"], " c , d,")).unwrap_err(),
            format!(
                "{vms}\n{set} jobs in partitions 'a', 'b' (policy.yaml:3); the job's partitions: c, d"
            )
        );
        fs::write(etc.path().join("policy.yaml"), "max-vms: 2\n").unwrap();
        let e = ask(facts(&[], "")).unwrap_err();
        assert!(e.contains("policy.yaml:1:1: max-vms: unknown key"), "{e}");
    }

    #[test]
    fn outside_of_slurm_only_the_user_is_known() {
        let own = asker_facts(true);
        let account = account::own().unwrap();
        assert_eq!((own.account, own.partitions), (None, Vec::new()));
        assert_eq!(own.user, account.name);
        assert!(!own.groups.is_empty());
        assert!(asker_facts(false).groups.is_empty());
        let root = account::of(0).unwrap();
        assert!(groups(&root).contains(&"root".to_owned()));
    }
}
