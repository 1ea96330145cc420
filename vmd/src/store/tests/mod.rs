//! One suite for both back ends; etcd is the real program on a port of its own.
//!
//! `MUSTER_REQUIRE=etcd` makes a missing etcd a failure; otherwise the tests that need it say that
//! they are skipped.

mod etcd;
mod server;

use super::*;

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let mut ticks = tokio::time::interval(Duration::from_millis(50));
    for _ in 0..600 {
        ticks.tick().await;
        if is_so().await {
            return;
        }
    }
    panic!("waited for {what}");
}

fn put(key: &str, value: &str) -> Write {
    Write::Put {
        key: key.into(),
        value: value.into(),
    }
}

fn text(snapshot: &Snapshot) -> Vec<(String, String)> {
    let pair = |(k, v): (&String, &Arc<[u8]>)| (k.clone(), String::from_utf8_lossy(v).into());
    snapshot.entries.iter().map(pair).collect()
}

async fn contract(store: Arc<dyn StateStore>) {
    transactions(&*store).await;
    watches(&*store).await;
    mirrors(&store).await;
    writers(&store).await;
    let alive = store.announce("/n/alive", b"1").await.unwrap();
    until("the announcement", async || {
        store.get("/n/alive").await.unwrap().is_some()
    })
    .await;
    alive.withdraw().await;
    assert_eq!(store.get("/n/alive").await.unwrap(), None);
}

async fn transactions(store: &dyn StateStore) {
    assert_eq!(store.get("/t/a").await.unwrap(), None);
    let absent = [Guard::Absent("/t/a".into())];
    let first = store
        .apply(&absent, &[put("/t/a", "1"), put("/t/b", "2")])
        .await
        .unwrap();
    let entry = store.get("/t/a").await.unwrap().unwrap();
    assert_eq!((entry.value.as_slice(), entry.revision), (&b"1"[..], first));
    let e = store.apply(&absent, &[put("/t/b", "9")]).await.unwrap_err();
    assert!(matches!(e, StoreError::Conflict { key } if key == "/t/a"));
    let old = [Guard::Revision("/t/a".into(), first)];
    store.apply(&old, &[put("/t/a", "3")]).await.unwrap();
    assert!(store.apply(&old, &[put("/t/a", "4")]).await.is_err());
    let guards = [Guard::Absent("/t/none".into()), old[0].clone()];
    let e = store.apply(&guards, &[]).await.unwrap_err();
    assert!(
        matches!(e, StoreError::Conflict { key } if key == "/t/a"),
        "the guard that failed is named"
    );
    store.apply(&[], &[put("/tt", "x")]).await.unwrap();
    let listing = store.list("/t/").await.unwrap();
    let pairs: Vec<_> = listing
        .entries
        .iter()
        .map(|e| (e.key.as_str(), e.value.as_slice()))
        .collect();
    assert_eq!(pairs, [("/t/a", &b"3"[..]), ("/t/b", &b"2"[..])]);
    let prefix = "/t/".to_owned();
    store
        .apply(&[], &[Write::DeletePrefix { prefix }])
        .await
        .unwrap();
    assert!(store.list("/t/").await.unwrap().entries.is_empty());
    assert!(
        store.get("/tt").await.unwrap().is_some(),
        "a longer name is another key"
    );
    let many: Vec<Write> = (0..129).map(|i| put(&format!("/m/{i}"), "")).collect();
    let e = store.apply(&[], &many).await.unwrap_err().to_string();
    assert!(e.contains("129 operations"), "{e}");
    let large = [put("/m/a", &"x".repeat(MAX_BYTES))];
    let e = store.apply(&[], &large).await.unwrap_err();
    assert!(matches!(e, StoreError::TooLarge { operations: 1, .. }));
    let delete = Write::Delete { key: "/m/a".into() };
    let prefix = Write::DeletePrefix {
        prefix: "/m".into(),
    };
    for other in [put("/m/a", "2"), delete, prefix] {
        let e = store.apply(&[], &[put("/m/a", "1"), other]).await;
        assert!(matches!(e, Err(StoreError::Twice { key }) if key == "/m/a"));
    }
}

async fn watches(store: &dyn StateStore) {
    let from = store.list("/w/").await.unwrap().revision + 1;
    let mut watch = store.watch("/w/", from).await.unwrap();
    store
        .apply(&[], &[put("/x", "0"), put("/w/a", "1")])
        .await
        .unwrap();
    store
        .apply(&[], &[Write::Delete { key: "/w/a".into() }])
        .await
        .unwrap();
    let mut seen = Vec::new();
    while seen.len() < 2 {
        seen.extend(watch.next().await.unwrap());
    }
    assert_eq!(seen[0].value.as_deref(), Some(&b"1"[..]));
    assert_eq!((seen[1].key.as_str(), &seen[1].value), ("/w/a", &None));
    let mut again = store.watch("/w/", seen[1].revision).await.unwrap();
    let missed = again.next().await.unwrap();
    assert_eq!(missed, seen[1..], "from its revision on, none before it");
}

async fn mirrors(store: &Arc<dyn StateStore>) {
    store.apply(&[], &[put("/r/a", "1")]).await.unwrap();
    let mut mirror = Mirror::start(Arc::clone(store), "/r/");
    while !mirror.borrow().synced {
        mirror.changed().await;
    }
    let kept = Arc::clone(&mirror.borrow().entries["/r/a"]);
    store.apply(&[], &[put("/r/b", "2")]).await.unwrap();
    while mirror.borrow().entries.len() < 2 {
        mirror.changed().await;
    }
    assert!(Arc::ptr_eq(&kept, &mirror.borrow().entries["/r/a"]));
    assert_eq!(text(&mirror.borrow())[1], ("/r/b".into(), "2".into()));
}

/// Of many who claim one key, one wins; of many who count, none is lost.
async fn writers(store: &Arc<dyn StateStore>) {
    let claims = (0..20).map(|i| {
        let store = Arc::clone(store);
        tokio::spawn(async move {
            let guard = [Guard::Absent("/claim".into())];
            store.apply(&guard, &[put("/claim", &i.to_string())]).await
        })
    });
    let mut won = 0;
    for claim in claims.collect::<Vec<_>>() {
        match claim.await.unwrap() {
            Ok(_) => won += 1,
            Err(StoreError::Conflict { .. }) => {}
            Err(e) => panic!("{e}"),
        }
    }
    assert_eq!(won, 1);
    let counters = (0..8).map(|_| tokio::spawn(count(Arc::clone(store))));
    for counter in counters.collect::<Vec<_>>() {
        counter.await.unwrap();
    }
    let counted = store.get("/count").await.unwrap().unwrap();
    assert_eq!(String::from_utf8_lossy(&counted.value), "40");
}

/// Counts five up, each time from what is there.
async fn count(store: Arc<dyn StateStore>) {
    let mut done = 0;
    for _ in 0..1000 {
        let (guard, next) = match store.get("/count").await.unwrap() {
            None => (Guard::Absent("/count".into()), 1),
            Some(entry) => {
                let value: u32 = String::from_utf8_lossy(&entry.value).parse().unwrap();
                (Guard::Revision("/count".into(), entry.revision), value + 1)
            }
        };
        match store
            .apply(&[guard], &[put("/count", &next.to_string())])
            .await
        {
            Ok(_) => done += 1,
            Err(StoreError::Conflict { .. }) => {}
            Err(e) => panic!("{e}"),
        }
        if done == 5 {
            return;
        }
    }
    panic!("never got through");
}

#[tokio::test]
async fn the_embedded_store_keeps_the_contract() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    let store = open(&StoreConfig::Embedded { path }).await.unwrap();
    contract(store).await;
}

#[tokio::test]
async fn the_embedded_store_is_there_again_without_announcements() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    let config = StoreConfig::Embedded { path: path.clone() };
    let store = open(&config).await.unwrap();
    store.apply(&[], &[put("/k", "v")]).await.unwrap();
    let announcement = store.announce("/alive", b"").await.unwrap();
    assert!(open(&config).await.is_err(), "one process at a time");
    drop(announcement);
    drop(store);
    let mut store = open(&config).await;
    for _ in 0..50 {
        // The keeper of the announcement lets go of the file a moment later.
        if store.is_ok() {
            break;
        }
        tokio::task::yield_now().await;
        store = open(&config).await;
    }
    let store = store.unwrap();
    assert!(store.get("/k").await.unwrap().is_some());
    assert!(store.get("/alive").await.unwrap().is_none());
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn the_embedded_store_forgets_old_changes_and_cuts_off_slow_watchers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    let store = open(&StoreConfig::Embedded { path }).await.unwrap();
    let first = store.apply(&[], &[put("/l/a", "0")]).await.unwrap();
    let mut slow = store.watch("/l/", first).await.unwrap();
    let many: Vec<Write> = (0..128).map(|i| put(&format!("/l/{i}"), "")).collect();
    for _ in 0..9 {
        store.apply(&[], &many).await.unwrap();
    }
    let e = store.watch("/l/", first).await.unwrap_err();
    assert!(matches!(e, StoreError::Compacted(at) if at == first));
    let seen = slow.next().await.unwrap();
    assert_eq!(seen[0].key, "/l/a", "what was watched in time is not lost");
    for i in 0..1025 {
        store
            .apply(&[], &[put("/l/b", &i.to_string())])
            .await
            .unwrap();
    }
    let mut batches = 0;
    let e = loop {
        match slow.next().await {
            Ok(_) => batches += 1,
            Err(e) => break e,
        }
    };
    assert!(matches!(e, StoreError::Ended));
    assert_eq!(batches, 1024);
    let mut mirror = Mirror::start(Arc::clone(&store), "/l/");
    while !mirror.borrow().synced {
        mirror.changed().await;
    }
    assert_eq!(mirror.borrow().entries.len(), 130);
}
