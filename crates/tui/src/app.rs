//! What is shown, and what keys do to it. Pure: statuses and keys in, orders out.

use gleaner_report::{StatusGroup, StatusReport, told};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::collections::{BTreeMap, VecDeque};

/// Moments kept of each group: more than a screen is wide.
const HISTORY: usize = 512;
/// Letters of a filter.
const FILTER_MAX: usize = 64;

/// What somebody else has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Quit,
    /// Stop like any other program that Ctrl-Z is pressed for.
    Suspend,
    /// The daemon is to leave this group alone, or no more.
    Hold {
        group: String,
        held: bool,
    },
}

/// Where a group ran at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    pub active: usize,
    pub awake: usize,
}

/// Everything that a picture is made of.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a key's, and means nothing to the others")]
pub(crate) struct App {
    status: Option<Box<StatusReport>>,
    /// Of each group, oldest first.
    history: BTreeMap<String, VecDeque<Moment>>,
    /// The group that was chosen, which may have gone.
    selected: Option<String>,
    pub filter: String,
    /// Whether, of many groups, the idle ones are shown too.
    pub idle: bool,
    /// Whether keys go into the filter.
    pub typing: bool,
    pub paused: bool,
    pub help: bool,
    /// Rows of vCPUs that are above the screen.
    pub scroll: usize,
    /// Lines of newer decisions that are above those shown.
    pub newer: usize,
    /// What somebody has yet to confirm.
    pub asking: Option<Order>,
    /// Why there is nothing new.
    pub lost: Option<String>,
    /// What came of the last order.
    pub note: Option<String>,
}

impl App {
    /// `group`: the one to begin with.
    pub(crate) fn new(group: Option<String>) -> Self {
        Self { selected: group, ..Self::default() }
    }

    /// The newest status. While it is paused nothing changes.
    pub(crate) fn show(&mut self, status: Box<StatusReport>) {
        let is_another = self.status.as_ref().is_some_and(|shown| shown.pid != status.pid);
        if is_another {
            self.history.clear();
        }
        self.lost = None;
        if self.paused && !is_another {
            return;
        }
        let is_new = is_another || self.status.as_ref().is_none_or(|shown| shown.up_ns < status.up_ns);
        if is_new {
            self.remember(&status);
        }
        self.status = Some(status);
    }

    /// The daemon cannot be asked.
    pub(crate) fn lose(&mut self, why: String) {
        self.lost = Some(why);
    }

    fn remember(&mut self, status: &StatusReport) {
        self.history.retain(|name, _| status.groups.iter().any(|group| group.name == *name));
        for group in &status.groups {
            let moments = self.history.entry(group.name.clone()).or_default();
            moments.push_back(Moment { active: group.active.len(), awake: group.retaining.len() });
            if moments.len() > HISTORY {
                moments.pop_front();
            }
        }
    }

    pub(crate) fn status(&self) -> Option<&StatusReport> {
        self.status.as_deref()
    }

    /// Those that the filter leaves, in the daemon's order. Without one, of many those that do most come first; idle
    /// ones only where they are wanted, and the one that was chosen.
    pub(crate) fn groups(&self) -> Vec<&StatusGroup> {
        let Some(status) = &self.status else { return Vec::new() };
        let wanted = self.filter.to_lowercase();
        if !wanted.is_empty() {
            let has_it = |group: &&StatusGroup| group.name.to_lowercase().contains(&wanted);
            return status.groups.iter().filter(has_it).collect();
        }
        let (mut groups, idle) = status.by_what_happens();
        let is_wanted =
            |group: &&StatusGroup| group.is_idle() && (self.idle || self.selected.as_ref() == Some(&group.name));
        if idle > 0 {
            groups.extend(status.groups.iter().filter(is_wanted));
        }
        groups
    }

    /// How many are left out because they are idle.
    pub(crate) fn folded(&self) -> usize {
        let all = self.status.as_ref().map_or(0, |status| status.groups.len());
        if self.filter.is_empty() { all - self.groups().len() } else { 0 }
    }

    /// The place of the group whose tab is open, among [`Self::groups`].
    pub(crate) fn chosen(&self) -> Option<usize> {
        let groups = self.groups();
        let selected = self.selected.as_ref();
        let place = groups.iter().position(|group| selected == Some(&group.name));
        place.or_else(|| (!groups.is_empty()).then_some(0))
    }

    /// The moments of a group, oldest first.
    pub(crate) fn moments(&self, group: &str) -> impl DoubleEndedIterator<Item = Moment> + '_ {
        self.history.get(group).into_iter().flatten().copied()
    }

    /// A key was pressed.
    pub(crate) fn key(&mut self, key: KeyEvent) -> Option<Order> {
        self.note = None;
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Some(Order::Quit),
                KeyCode::Char('z') => Some(Order::Suspend),
                _ => None,
            };
        }
        if self.typing {
            self.type_filter(key.code);
            return None;
        }
        if let Some(order) = self.asking.take() {
            return Some(order).filter(|_| matches!(key.code, KeyCode::Char('y' | 'Y') | KeyCode::Enter));
        }
        match key.code {
            KeyCode::Char('q') => return Some(Order::Quit),
            KeyCode::Esc if self.help => self.help = false,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('h' | '?') | KeyCode::F(1) => self.help = !self.help,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Char('i') => self.idle = !self.idle,
            KeyCode::Char('H') => self.ask_to_hold(),
            KeyCode::Char('j') => self.newer = (self.newer + 1).min(self.lines().saturating_sub(1)),
            KeyCode::Char('k') => self.newer = self.newer.saturating_sub(1),
            KeyCode::Char('g') => self.newer = 0,
            KeyCode::Tab | KeyCode::Right => self.switch(1),
            KeyCode::BackTab | KeyCode::Left => self.switch(-1),
            KeyCode::Up => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::Down => self.scroll += 1,
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(10),
            KeyCode::PageDown => self.scroll += 10,
            KeyCode::Home => self.scroll = 0,
            _ => {}
        }
        None
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Char(letter) if self.filter.chars().count() < FILTER_MAX => self.filter.push(letter),
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.filter.clear();
                self.typing = false;
            }
            _ => {}
        }
    }

    fn ask_to_hold(&mut self) {
        let group = self.chosen().and_then(|place| self.groups().get(place).copied());
        self.asking = group.map(|group| Order::Hold { group: group.name.clone(), held: !group.held });
    }

    /// Lines of decisions of the open group.
    fn lines(&self) -> usize {
        let group = self.chosen().and_then(|place| self.groups().get(place).copied());
        group.map_or(0, |group| told(&group.decisions).len())
    }

    /// Opens the tab so many to the right.
    fn switch(&mut self, by: isize) {
        let names: Vec<String> = self.groups().iter().map(|group| group.name.clone()).collect();
        let Some(place) = self.chosen() else { return };
        self.newer = 0;
        let count = isize::try_from(names.len()).unwrap_or(1);
        let place = (isize::try_from(place).unwrap_or(0) + by).rem_euclid(count);
        self.selected = usize::try_from(place).ok().and_then(|place| names.get(place).cloned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_report::{DecisionRecord, StatusRecent};

    fn status(at: u64, names: &[&str]) -> Box<StatusReport> {
        let group =
            |name: &&str| StatusGroup { name: (*name).to_owned(), active: vec![0, 1], ..StatusGroup::default() };
        Box::new(StatusReport { pid: 7, up_ns: at, groups: names.iter().map(group).collect(), ..Default::default() })
    }

    fn press(app: &mut App, keys: &[KeyCode]) -> Option<Order> {
        keys.iter().filter_map(|code| app.key(KeyEvent::from(*code))).last()
    }

    fn typed(text: &str) -> Vec<KeyCode> {
        text.chars().map(KeyCode::Char).collect()
    }

    fn chosen(app: &App) -> Option<String> {
        Some(app.groups()[app.chosen()?].name.clone())
    }

    #[test]
    fn tabs_go_round_and_the_chosen_one_stays_while_others_come_and_go() {
        let mut app = App::new(Some("b".into()));
        assert_eq!(app.chosen(), None, "nothing yet");
        app.show(status(1, &["a", "b", "c"]));
        assert_eq!(chosen(&app).as_deref(), Some("b"), "as asked for");
        press(&mut app, &[KeyCode::Tab]);
        app.show(status(2, &["b", "c"]));
        assert_eq!(chosen(&app).as_deref(), Some("c"));
        press(&mut app, &[KeyCode::Right]);
        assert_eq!(chosen(&app).as_deref(), Some("b"));
        press(&mut app, &[KeyCode::BackTab]);
        app.show(status(3, &["a", "b"]));
        assert_eq!(chosen(&app).as_deref(), Some("a"), "c has gone");
        app.show(status(4, &["a", "b", "c"]));
        assert_eq!(chosen(&app).as_deref(), Some("c"), "and came back");
        app.show(status(5, &[]));
        press(&mut app, &[KeyCode::Tab, KeyCode::Char('H'), KeyCode::Char('y')]);
        assert_eq!(app.chosen(), None);
    }

    #[test]
    fn of_many_groups_the_busy_ones_come_first_and_idle_ones_are_folded() {
        let names: Vec<String> = (0..200).map(|n| format!("w@{n}")).collect();
        let mut many = status(1, &names.iter().map(String::as_str).collect::<Vec<_>>());
        many.groups.iter_mut().for_each(|group| group.recent = StatusRecent::default());
        let busy = |cpu_time_ns| StatusRecent { observed_ns: 1_000, cpu_time_ns, ..StatusRecent::default() };
        (many.groups[7].recent, many.groups[150].recent, many.groups[3].held) = (busy(200), busy(900), true);
        let shown = |app: &App| app.groups().iter().map(|group| group.name.clone()).collect::<Vec<_>>();
        let mut app = App::new(None);
        app.show(many.clone());
        assert_eq!((shown(&app), app.folded()), (vec!["w@150".into(), "w@7".into(), "w@3".into()], 197));
        assert_eq!(chosen(&app).as_deref(), Some("w@150"));
        press(&mut app, &typed("i"));
        assert_eq!((app.groups().len(), app.folded()), (200, 0));
        press(&mut app, &[KeyCode::BackTab, KeyCode::Char('i')]);
        assert_eq!(shown(&app)[3..], ["w@199"], "it is open");
        press(&mut app, &typed("/w@19"));
        assert_eq!((app.groups().len(), app.folded()), (11, 0), "who looks for one finds it");
        many.groups.iter_mut().for_each(|group| (group.recent, group.held) = (busy(0), false));
        let mut app = App::new(None);
        app.show(many);
        assert_eq!((app.chosen(), app.folded()), (None, 200));
    }

    #[test]
    fn a_filter_is_typed_and_keys_mean_letters_meanwhile() {
        let mut app = App::new(None);
        app.show(status(1, &["redis", "web/a", "web/b"]));
        assert_eq!(press(&mut app, &typed("/WEBq")), None, "q is a letter here");
        assert!(app.groups().is_empty());
        press(&mut app, &[KeyCode::Backspace, KeyCode::Enter]);
        assert_eq!(app.groups().len(), 2);
        assert_eq!(press(&mut app, &typed("Hy")), Some(Order::Hold { group: "web/a".into(), held: true }));
        press(&mut app, &[KeyCode::Esc]);
        assert_eq!(app.groups().len(), 3);
        press(&mut app, &typed("/x"));
        press(&mut app, &[KeyCode::Esc]);
        assert!(!app.typing && app.filter.is_empty());
        assert_eq!(press(&mut app, &typed("q")), Some(Order::Quit));
        let ctrl_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        press(&mut app, &typed("/"));
        assert_eq!(app.key(ctrl_c), Some(Order::Quit), "also while typing");
        press(&mut app, &typed(&"x".repeat(1000)));
        assert_eq!(app.filter.len(), FILTER_MAX);
    }

    #[test]
    fn a_held_group_is_released_by_the_same_key() {
        let mut app = App::new(None);
        let mut held = status(1, &["a"]);
        held.groups[0].held = true;
        app.show(held);
        assert_eq!(press(&mut app, &typed("Hy")), Some(Order::Hold { group: "a".into(), held: false }));
    }

    #[test]
    fn holding_asks_and_h_is_help() {
        let mut app = App::new(None);
        app.show(status(1, &["a", "b"]));
        assert_eq!(press(&mut app, &typed("h")), None);
        assert!(app.help && app.asking.is_none());
        press(&mut app, &typed("h"));
        assert!(!app.help);
        assert_eq!(press(&mut app, &typed("H")), None, "nobody has said yes");
        assert!(app.asking.is_some());
        assert_eq!(press(&mut app, &typed("nq")), Some(Order::Quit), "n is no, and q is itself again");
        // Anything but yes is no.
        assert_eq!(press(&mut app, &typed("Hq")), None);
        assert_eq!(press(&mut app, &typed("HH")), None);
        press(&mut app, &typed("H"));
        assert_eq!(press(&mut app, &[KeyCode::Enter]), Some(Order::Hold { group: "a".into(), held: true }));
    }

    #[test]
    fn decisions_scroll_to_the_oldest_and_no_further() {
        let mut app = App::new(None);
        let mut all = status(1, &["a", "b"]);
        all.groups[0].decisions = (0..5)
            .map(|at_ns| DecisionRecord { at_ns, action: "retain".into(), vcpu: None, reason: "x".into() })
            .collect();
        app.show(all);
        press(&mut app, &typed("jjjjjjjjj"));
        assert_eq!(app.newer, 4);
        press(&mut app, &typed("k"));
        assert_eq!(app.newer, 3);
        press(&mut app, &typed("gk"));
        assert_eq!(app.newer, 0);
        press(&mut app, &typed("jj"));
        press(&mut app, &[KeyCode::Tab]);
        assert_eq!(app.newer, 0, "another group has others");
        press(&mut app, &typed("j"));
        assert_eq!(app.newer, 0, "and none");
    }

    #[test]
    fn what_is_paused_stays_and_goes_on_with_the_newest() {
        let mut app = App::new(None);
        app.show(status(1, &["a"]));
        press(&mut app, &typed("p"));
        app.show(status(2, &["a"]));
        assert_eq!(app.status().unwrap().up_ns, 1);
        press(&mut app, &typed(" "));
        app.show(status(3, &["a"]));
        assert_eq!((app.status().unwrap().up_ns, app.moments("a").count()), (3, 2));
        // The same status twice is one moment.
        app.show(status(3, &["a"]));
        assert_eq!(app.moments("a").count(), 2);
    }

    #[test]
    fn another_daemon_has_another_history() {
        let mut app = App::new(None);
        (1..2000).for_each(|at| app.show(status(at, &["a"])));
        assert_eq!(app.moments("a").count(), HISTORY);
        app.lose("gone".into());
        let restarted = StatusReport { pid: 8, ..*status(5, &["a"]) };
        app.show(Box::new(restarted));
        assert_eq!((app.moments("a").count(), app.lost.as_ref()), (1, None));
    }
}
