use super::*;
use crate::source::Tree;

pub(super) fn source(text: &str) -> Source {
    Source {
        path: "networks.yaml".into(),
        text: text.into(),
        tree: Tree::System,
    }
}
