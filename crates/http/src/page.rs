// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page for browsers: files that are part of the program. It shows what the API says, and needs
//! nothing from anywhere else.

/// A file of the page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct File {
    path: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) text: &'static str,
}

/// What a browser may do with what comes from here: its own files run, nothing else does, and no
/// page shows it within itself.
pub(crate) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'";

const SCRIPT: &str = "text/javascript; charset=utf-8";

const FILES: [File; 13] = [
    File { path: "/", kind: "text/html; charset=utf-8", text: include_str!("page/page.html") },
    File {
        path: "/page.css",
        kind: "text/css; charset=utf-8",
        text: include_str!("page/page.css"),
    },
    File { path: "/icon.svg", kind: "image/svg+xml", text: include_str!("page/icon.svg") },
    File { path: "/page.js", kind: SCRIPT, text: include_str!("page/page.js") },
    File { path: "/disks.js", kind: SCRIPT, text: include_str!("page/disks.js") },
    File { path: "/figures.js", kind: SCRIPT, text: include_str!("page/figures.js") },
    File { path: "/entrance.js", kind: SCRIPT, text: include_str!("page/entrance.js") },
    File { path: "/events.js", kind: SCRIPT, text: include_str!("page/events.js") },
    File { path: "/orders.js", kind: SCRIPT, text: include_str!("page/orders.js") },
    File { path: "/past.js", kind: SCRIPT, text: include_str!("page/past.js") },
    File { path: "/plot.js", kind: SCRIPT, text: include_str!("page/plot.js") },
    File { path: "/stream.js", kind: SCRIPT, text: include_str!("page/stream.js") },
    File { path: "/table.js", kind: SCRIPT, text: include_str!("page/table.js") },
];

impl File {
    pub(crate) fn at(path: &str) -> Option<Self> {
        FILES.into_iter().find(|file| file.path == path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Resource;

    /// What names of others could become, if they were more than text.
    #[test]
    fn names_are_shown_as_text_alone() {
        for File { path, text, .. } in FILES {
            for word in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "new Function",
                "srcdoc",
                "setHTML",
                "createContextualFragment",
                "DOMParser",
            ] {
                assert!(!text.contains(word), "{path}: {word}");
            }
        }
    }

    /// Those of plots are our own.
    #[test]
    fn hidden_letters_of_names_are_shown() {
        for File { path, text, .. } in FILES.into_iter().filter(|file| file.path != "/plot.js") {
            for line in text.lines().filter(|line| line.contains(".textContent = ")) {
                let is_own = line.contains("visible(") || line.contains("!== text) element");
                assert!(is_own || line.contains(" = yes;"), "{path}: {line}");
            }
        }
        let table = File::at("/table.js").unwrap().text;
        assert!(table.contains("const text = visible(said);"));
    }

    #[test]
    fn nothing_is_within_that_the_policy_forbids() {
        assert!(!POLICY.contains("unsafe") && !POLICY.contains('*'));
        let page = File::at("/").unwrap().text;
        for word in ["style=", "<style", "javascript:", " onclick", " onload", "<iframe", "<form"] {
            assert!(!page.contains(word), "{word}");
        }
        for (place, _) in page.match_indices("<script") {
            assert!(page[place..].starts_with("<script type=\"module\" src=\"/"), "inline");
        }
        for File { path, text, .. } in FILES {
            let without_namespace = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!without_namespace.contains("://"), "{path} is from here alone");
            assert!(!text.contains("@import"), "{path}");
        }
    }

    #[test]
    fn all_that_the_page_names_is_there() {
        let page = File::at("/").unwrap().text;
        let of = |text: &'static str, before: &'static str| {
            let parts = text.split(before).skip(1);
            parts.filter_map(|part| part.split('"').next()).collect::<Vec<_>>()
        };
        for path in of(page, "href=\"/").into_iter().chain(of(page, "src=\"/")) {
            let path = format!("/{path}");
            let is_there = File::at(&path).is_some()
                || Resource::at(&path).is_some()
                || [crate::api::DESCRIPTION_PATH, "/metrics"].contains(&&*path);
            assert!(is_there, "{path}");
        }
        for File { text, .. } in FILES {
            for path in of(text, "from \"") {
                assert!(File::at(path).is_some(), "{path}");
            }
            for name in of(text, "await ask(\"") {
                assert!(Resource::at(&format!("/api/v1/{name}")).is_some(), "{name}");
            }
            for id in of(text, "at(\"").into_iter().chain(of(text, "href=\"#")) {
                assert!(page.contains(&format!(" id=\"{id}\"")), "{id}");
            }
        }
    }

    /// People who do not see it, and programs that read it to them.
    #[test]
    fn parts_have_names() {
        let page = File::at("/").unwrap().text;
        for wanted in ["<html lang=\"en\">", "<title>", "<header>", "<nav aria-label=", "<main "] {
            assert!(page.contains(wanted), "{wanted}");
        }
        let parts = |tag: &str| {
            let parts = page.split(tag).skip(1);
            parts.filter_map(|part| part.split('>').next()).collect::<Vec<_>>()
        };
        for tag in ["<section", "<table"] {
            for part in parts(tag) {
                assert!(part.contains("aria-labelledby="), "{tag}{part}");
            }
        }
        for head in parts("<th ") {
            assert!(head.contains("scope=\"col\""), "{head}");
        }
        for tag in ["<select", "<input"] {
            for part in parts(tag) {
                let id = part.split("id=\"").nth(1).and_then(|rest| rest.split('"').next());
                let label = format!("<label for=\"{}\">", id.unwrap());
                assert!(page.contains(&label), "{label}");
            }
        }
    }
}
