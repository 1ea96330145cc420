//! What the options beside `--vm` change: images, mounts, user-data, how long is waited.

use std::collections::BTreeMap;

use muster_types::api::Wait;
use muster_types::ids::shown;
use muster_types::template::{Mount, MountType, check_tag};

use super::error::{SubmitError, SubmitErrors};
use crate::library::Library;
use crate::nearest::hint;

/// The options as the user gave them; of those that may be given again, all in order: a later one
/// holds where two contradict, as with every option of Slurm.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// `--vm-image=[TEMPLATE=]IMAGE`.
    pub images: Vec<String>,
    /// `--vm-mount=TAG=PATH[,type=TYPE][,readonly=BOOL]`.
    pub mounts: Vec<String>,
    /// `--vm-user-data=FILE`.
    pub user_data: Option<String>,
    /// `--vm-wait=ready|running|no`.
    pub wait: Option<String>,
    /// `--vm-wait-timeout=SECONDS`.
    pub wait_timeout: Option<String>,
}

impl Options {
    /// Whether any is given.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// How many items of a definition are told.
const MAX_TOLD: usize = 20;

/// The options understood.
#[derive(Debug, Default)]
pub(super) struct Overrides {
    /// The image of each template that is named.
    pub(super) images: BTreeMap<String, String>,
    /// The image of all others.
    pub(super) image: Option<String>,
    pub(super) mounts: BTreeMap<String, Mount>,
    pub(super) user_data: Option<String>,
}

impl Overrides {
    /// The option that says what a key holds, if one does.
    pub(super) fn option_for(&self, key: &str) -> Option<&'static str> {
        match key {
            "user-data" => self.user_data.as_ref().map(|_| "--vm-user-data"),
            "mount-points" if !self.mounts.is_empty() => Some("--vm-mount"),
            _ => None,
        }
    }
}

/// Reads the options; `items` are the names in the definition.
pub(super) fn read(
    options: &Options,
    items: &[&str],
    library: &Library,
    errors: &mut Vec<SubmitError>,
) -> Overrides {
    let mut read = Overrides {
        user_data: options.user_data.clone(),
        ..Overrides::default()
    };
    for text in &options.images {
        if let Err(why) = image(text, items, library, &mut read) {
            errors.push(SubmitError::Option {
                option: "--vm-image",
                why,
            });
        }
    }
    for text in &options.mounts {
        match mount(text) {
            Ok((tag, mount)) => {
                read.mounts.insert(tag, mount);
            }
            Err(why) => errors.push(SubmitError::Option {
                option: "--vm-mount",
                why,
            }),
        }
    }
    let waiting = waiting(options.wait.as_deref(), options.wait_timeout.as_deref());
    errors.extend(waiting.err().into_iter().flat_map(|e| e.0));
    read
}

/// How the tasks of a job wait: until when, and for how many seconds at most, 1 to 86400.
///
/// # Errors
/// Each option that is wrong, with what is allowed.
pub fn waiting(
    wait: Option<&str>,
    timeout: Option<&str>,
) -> Result<(Wait, Option<u32>), SubmitErrors> {
    let (mut until, mut seconds, mut errors) = (Wait::default(), None, Vec::new());
    if let Some(word) = wait {
        match Wait::WORDS.iter().find(|(w, _)| *w == word) {
            Some((_, wait)) => until = *wait,
            None => {
                let near = hint(word, Wait::WORDS.iter().map(|(w, _)| *w));
                let why = format!("'{}' is none of ready, running, no{near}", shown(word));
                let option = "--vm-wait";
                errors.push(SubmitError::Option { option, why });
            }
        }
    }
    if let Some(text) = timeout {
        let given = text.parse::<u32>().ok();
        seconds = given.filter(|s| (1..=86_400).contains(s));
        if seconds.is_none() {
            let why = format!("'{}' is no number of seconds from 1 to 86400", shown(text));
            let option = "--vm-wait-timeout";
            errors.push(SubmitError::Option { option, why });
        }
    }
    if errors.is_empty() {
        Ok((until, seconds))
    } else {
        Err(SubmitErrors(errors))
    }
}

/// `[TEMPLATE=]IMAGE`. What holds a `/` or `:` before the `=` is a path or an image's name.
fn image(text: &str, items: &[&str], library: &Library, to: &mut Overrides) -> Result<(), String> {
    let (template, image) = match text.split_once('=') {
        Some((template, image)) if !template.contains(['/', ':']) => (Some(template), image),
        _ => (None, text),
    };
    if image.is_empty() {
        return Err(format!(
            "'{}': the image is missing: [TEMPLATE=]IMAGE",
            shown(text)
        ));
    }
    let Some(template) = template else {
        to.image = Some(image.to_owned());
        return Ok(());
    };
    if !items.contains(&template) {
        let named: Vec<String> = items
            .iter()
            .take(MAX_TOLD)
            .map(|item| shown(item))
            .collect();
        let near = hint(template, named.iter().map(String::as_str));
        let more = if items.len() > MAX_TOLD { ", ..." } else { "" };
        let what = match library.get(template) {
            Some(_) => "template",
            None => "item",
        };
        return Err(format!(
            "{what} '{}' is not in --vm, which has {}{more}{near}",
            shown(template),
            named.join(", ")
        ));
    }
    to.images.insert(template.to_owned(), image.to_owned());
    Ok(())
}

/// `TAG=PATH[,type=TYPE][,readonly=BOOL]`.
fn mount(text: &str) -> Result<(String, Mount), String> {
    let form = "write TAG=PATH[,type=virtio-9p|virtio-fs][,readonly=true|false]";
    let bad = |why: &str| format!("'{}': {why}: {form}", shown(text));
    let (tag, rest) = text
        .split_once('=')
        .ok_or_else(|| bad("the '=' is missing"))?;
    check_tag(tag)?;
    let mut fields = rest.split(',');
    let path = fields.next().unwrap_or_default();
    if path.is_empty() {
        return Err(bad("the path is missing"));
    }
    let mut mount = Mount {
        path: path.to_owned(),
        readonly: false,
        kind: MountType::default(),
    };
    for field in fields {
        match field.split_once('=') {
            Some(("type", word)) => {
                let found = MountType::WORDS.iter().find(|(w, _)| *w == word);
                let kind = found.ok_or_else(|| {
                    let near = hint(word, MountType::WORDS.iter().map(|(w, _)| *w));
                    bad(&format!("'{}' is no type{near}", shown(word)))
                });
                mount.kind = kind?.1;
            }
            Some(("readonly", word)) => {
                mount.readonly = match word {
                    "true" | "yes" | "on" | "1" => true,
                    "false" | "no" | "off" | "0" => false,
                    _ => {
                        return Err(bad(&format!(
                            "readonly: '{}' is neither true nor false",
                            shown(word)
                        )));
                    }
                };
            }
            _ => {
                let word = field.split('=').next().unwrap_or_default();
                let near = hint(word, ["type", "readonly"]);
                return Err(bad(&format!(
                    "'{}' is no setting of a mount{near}",
                    shown(field)
                )));
            }
        }
    }
    Ok((tag.to_owned(), mount))
}
