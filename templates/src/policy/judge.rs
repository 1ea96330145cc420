//! A request held against the policy.

use std::collections::BTreeSet;
use std::fmt;

use muster_types::ids::shown;
use muster_types::request::ClusterRequest;
use muster_types::template::TemplateSpec;

use crate::error::one_line;

use super::own::Own;
use super::rule::Asker;
use super::{CustomArgs, OwnTemplates, Place, Policy};

/// Why a request is refused: one sentence with the place of the rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    what: String,
    place: Place,
    asker: Option<String>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", one_line(&self.what), self.place)?;
        match &self.asker {
            Some(asker) => write!(f, "; {}", one_line(asker)),
            None => Ok(()),
        }
    }
}

impl Policy {
    /// Everything in a request that its user may not have; empty if it may run.
    #[must_use]
    pub fn judge(&self, request: &ClusterRequest, asker: &Asker<'_>, own: &Own) -> Vec<Refusal> {
        let mut refusals = Vec::new();
        if let Some((most, place)) = &self.max_vms
            && request.vm_count() > *most
        {
            let count = request.vm_count();
            let vms = if *most == 1 { "VM is" } else { "VMs are" };
            refusals.push(Refusal {
                what: format!("the job has {count} VMs, at most {most} {vms} allowed"),
                place: place.clone(),
                asker: None,
            });
        }
        self.judge_sets(request, asker, &mut refusals);
        for (name, template) in &request.templates {
            if own.has_template(name) {
                refusals.extend(self.judge_own_template(name, asker));
            }
            if own.has_value(name, "qemu-bin") {
                refusals.extend(self.judge_qemu_bin(name, template));
            }
            if own.has_value(name, "custom-args") {
                refusals.extend(self.judge_custom_args(name, template));
            }
        }
        refusals
    }

    fn judge_sets(&self, request: &ClusterRequest, asker: &Asker<'_>, refusals: &mut Vec<Refusal>) {
        let of_template = |(name, template): (&String, &TemplateSpec)| {
            Some((template.resource_set.clone()?, Some(name.clone())))
        };
        let named = request.templates.iter().filter_map(of_template);
        // A forged request may hold sets that none of its templates names.
        let others = request.resource_sets.keys().map(|set| (set.clone(), None));
        let mut told = BTreeSet::new();
        for (set, template) in named.chain(others) {
            let Some(rule) = self.resource_sets.get(&set) else {
                continue;
            };
            if let Some(outside) = rule.refuses(asker)
                && told.insert(set.clone())
            {
                let template = template.map_or_else(String::new, |t| of(&t));
                refusals.push(Refusal {
                    what: format!("{template}resource set '{set}' is for {}", outside.may),
                    place: rule.place.clone(),
                    asker: Some(outside.asker),
                });
            }
        }
    }

    fn judge_own_template(&self, name: &str, asker: &Asker<'_>) -> Option<Refusal> {
        let what = format!("{}it is none of the site's", of(name));
        match self.templates.as_ref()? {
            OwnTemplates::Nobody(place) => Some(Refusal {
                what: format!("{what}, and only those may be used"),
                place: place.clone(),
                asker: None,
            }),
            OwnTemplates::Some(rule) => {
                let outside = rule.refuses(asker)?;
                Some(Refusal {
                    what: format!("{what}, and templates of one's own are for {}", outside.may),
                    place: rule.place.clone(),
                    asker: Some(outside.asker),
                })
            }
        }
    }

    fn judge_qemu_bin(&self, name: &str, template: &TemplateSpec) -> Option<Refusal> {
        let program = template.qemu_bin.as_deref()?;
        let (allowed, place) = self.qemu_bins.as_ref()?;
        if allowed.iter().any(|entry| is_program(entry, program)) {
            return None;
        }
        let each = allowed.iter().map(|entry| match entry.strip_suffix('/') {
            Some(_) => format!("what is in {entry}"),
            None => entry.clone(),
        });
        let each: Vec<_> = each.collect();
        let (name, program) = (of(name), shown(program));
        Some(Refusal {
            what: format!(
                "{name}qemu-bin '{program}' is not allowed; allowed are {}",
                each.join(", ")
            ),
            place: place.clone(),
            asker: None,
        })
    }

    fn judge_custom_args(&self, name: &str, template: &TemplateSpec) -> Option<Refusal> {
        let args = &template.custom_args;
        if args.is_empty() {
            return None;
        }
        let (rule, place) = self.custom_args.as_ref()?;
        let what = match rule {
            CustomArgs::None => "custom-args are not allowed".to_owned(),
            CustomArgs::Only(names) => {
                let allowed = names.iter().map(|n| format!("-{n}")).collect::<Vec<_>>();
                let allowed = allowed.join(", ");
                let bad = not_allowed(args, names)?;
                format!(
                    "custom-args: '{}' {}; allowed are {allowed}",
                    shown(bad.0),
                    bad.1
                )
            }
        };
        Some(Refusal {
            what: format!("{}{what}", of(name)),
            place: place.clone(),
            asker: None,
        })
    }
}

fn of(template: &str) -> String {
    format!("template '{}': ", shown(template))
}

/// Whether an entry of `qemu-bins` allows a program: a path that ends with a / stands for what is in
/// that directory, not below it.
fn is_program(entry: &str, program: &str) -> bool {
    if !entry.ends_with('/') {
        return entry == program;
    }
    program
        .strip_prefix(entry)
        .is_some_and(|name| !matches!(name, "" | "." | "..") && !name.contains('/'))
}

/// The name of an option, for QEMU takes one dash or two; none: a value.
pub(super) fn option_name(argument: &str) -> Option<&str> {
    let name = argument.strip_prefix('-')?;
    Some(name.strip_prefix('-').unwrap_or(name))
}

/// The first argument that is not allowed, and why. An option of QEMU takes one value or none, and
/// an argument that is no option's value is a disk (qemu(1)).
fn not_allowed<'a>(args: &'a [String], allowed: &[String]) -> Option<(&'a str, &'static str)> {
    let mut value_may_follow = false;
    for arg in args {
        match option_name(arg) {
            Some(name) if allowed.iter().any(|a| a == name) => value_may_follow = true,
            Some(_) => return Some((arg, "is not allowed")),
            None if value_may_follow => value_may_follow = false,
            None => return Some((arg, "is the value of no option")),
        }
    }
    None
}
