//! Profiles: the versioned components that a client declares it runs with (protocol §9).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::canonical::Sha256Digest;
use super::fault::Fault;
use super::ids::Name;
use crate::limits;

/// What a component is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ComponentClass {
    /// Something that acts.
    Tool,
    /// Something that decides.
    Policy,
    /// Where it runs.
    Environment,
}

/// One versioned component. The members stand in the order of canonical JSON.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProfileComponent {
    /// Changes when the behaviour changes.
    #[schema(min_length = 1, max_length = 256, example = "1")]
    pub behavior_version: String,
    /// What it is.
    pub class: ComponentClass,
    /// Changes with every build.
    #[schema(min_length = 1, max_length = 256, example = "1.4.2")]
    pub implementation_version: String,
    /// Its name.
    #[schema(min_length = 1, max_length = 256, example = "payments.refund")]
    pub name: String,
}

/// A set of components, one per class and name, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    components: Vec<ProfileComponent>,
}

/// In which way a class of components differs: never which component, and never its versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DifferenceCategory {
    /// The same components, of other versions.
    OpaqueIdentity,
    /// Other components, or nothing to compare with.
    OtherOrUnknown,
}

/// One class that differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct ProfileDifference {
    /// The class; absent where one of the profiles is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<ComponentClass>,
    /// In which way.
    pub category: DifferenceCategory,
}

impl Profile {
    /// Checks and sorts components.
    ///
    /// # Errors
    /// Every fault, with pointers below `/components`.
    pub fn new(mut components: Vec<ProfileComponent>) -> Result<Self, Vec<Fault>> {
        let mut faults = Vec::new();
        if components.is_empty() || components.len() > limits::PROFILE_COMPONENTS {
            faults.push(Fault::new("/components", "must have 1 to 256 entries"));
            return Err(faults);
        }
        let mut seen = BTreeSet::new();
        for (index, component) in components.iter().enumerate() {
            for (text, member) in [
                (&component.name, "name"),
                (&component.behavior_version, "behavior_version"),
                (&component.implementation_version, "implementation_version"),
            ] {
                if let Err(fault) = Name::new(text) {
                    faults.push(Fault::new(&format!("/components/{index}/{member}"), &fault.to_string()));
                }
            }
            if !seen.insert((component.class, component.name.as_str())) {
                faults.push(Fault::new(&format!("/components/{index}"), "names a component twice"));
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        components.sort_by(|a, b| (a.class, &a.name).cmp(&(b.class, &b.name)));
        Ok(Self { components })
    }

    /// Reads a profile as stored.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::new(serde_json::from_str(text).ok()?).ok()
    }

    /// The components, in order.
    #[must_use]
    pub fn components(&self) -> &[ProfileComponent] {
        &self.components
    }

    /// The canonical JSON of the sorted components.
    #[must_use]
    pub fn text(&self) -> String {
        serde_json::to_string(&self.components).unwrap_or_default()
    }

    /// The profile id: the digest of [`Profile::text`].
    #[must_use]
    pub fn id(&self) -> Sha256Digest {
        Sha256Digest::of(self.text().as_bytes())
    }

    /// The classes in which two profiles differ.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<ProfileDifference> {
        let mut differences = Vec::new();
        for class in [ComponentClass::Tool, ComponentClass::Policy, ComponentClass::Environment] {
            let (ours, theirs) = (self.of_class(class), other.of_class(class));
            if ours != theirs {
                let same_names = ours.keys().eq(theirs.keys());
                let category =
                    if same_names { DifferenceCategory::OpaqueIdentity } else { DifferenceCategory::OtherOrUnknown };
                differences.push(ProfileDifference { class: Some(class), category });
            }
        }
        differences
    }

    fn of_class(&self, class: ComponentClass) -> BTreeMap<&str, (&str, &str)> {
        let mut found = BTreeMap::new();
        for component in self.components.iter().filter(|component| component.class == class) {
            let versions = (component.behavior_version.as_str(), component.implementation_version.as_str());
            found.insert(component.name.as_str(), versions);
        }
        found
    }
}

/// What is said where one of two profiles is not known.
#[must_use]
pub fn unknown_difference() -> Vec<ProfileDifference> {
    vec![ProfileDifference { class: None, category: DifferenceCategory::OtherOrUnknown }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::canonical::Canonical;

    fn component(class: ComponentClass, name: &str, version: &str) -> ProfileComponent {
        ProfileComponent {
            behavior_version: version.to_owned(),
            class,
            implementation_version: "\u{e9}\"\\1".to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn the_id_is_of_the_set_and_not_of_its_order() {
        use ComponentClass::{Environment, Policy, Tool};
        let all = [component(Tool, "b", "1"), component(Environment, "a", "1"), component(Tool, "a", "1")];
        let profile = Profile::new(all.to_vec()).unwrap();
        let mut turned = all.to_vec();
        turned.reverse();
        assert_eq!(Profile::new(turned).unwrap().id(), profile.id());
        assert_ne!(Profile::new(vec![component(Policy, "a", "1")]).unwrap().id(), profile.id());
        assert_eq!(Profile::parse(&profile.text()).unwrap(), profile);
        // Anybody can make the id: it is over canonical JSON.
        let raw: Box<serde_json::value::RawValue> = serde_json::from_str(&profile.text()).unwrap();
        assert_eq!(Canonical::of(&raw).unwrap().digest(), profile.id());
    }

    #[test]
    fn differences_name_classes_alone() {
        use ComponentClass::{Policy, Tool};
        use DifferenceCategory::{OpaqueIdentity, OtherOrUnknown};
        let profile = |components: &[ProfileComponent]| Profile::new(components.to_vec()).unwrap();
        let base = profile(&[component(Tool, "a", "1"), component(Policy, "p", "1")]);
        let said = |other: &Profile| -> Vec<_> {
            base.differences(other).iter().map(|found| (found.class.unwrap(), found.category)).collect()
        };
        assert_eq!(said(&base), []);
        let newer = profile(&[component(Tool, "a", "2"), component(Policy, "p", "1")]);
        assert_eq!(said(&newer), [(Tool, OpaqueIdentity)]);
        let more = profile(&[component(Tool, "a", "1"), component(Tool, "b", "1"), component(Policy, "p", "2")]);
        assert_eq!(said(&more), [(Tool, OtherOrUnknown), (Policy, OpaqueIdentity)]);
        let less = profile(&[component(Tool, "a", "1")]);
        assert_eq!(said(&less), [(Policy, OtherOrUnknown)]);
    }

    #[test]
    fn faults_are_pointed_at() {
        use ComponentClass::Tool;
        let at = |components: Vec<ProfileComponent>| -> Vec<String> {
            Profile::new(components).unwrap_err().into_iter().map(|fault| fault.pointer).collect()
        };
        assert_eq!(at(Vec::new()), ["/components"]);
        let (good, twice) = (component(Tool, "a", "1"), component(Tool, "a", "2"));
        assert_eq!(at(vec![good.clone(), twice]), ["/components/1"]);
        assert_eq!(at(vec![good, component(Tool, " b", "")]), ["/components/1/name", "/components/1/behavior_version"]);
        let many = (0..257).map(|n| component(Tool, &n.to_string(), "1")).collect();
        assert_eq!(at(many), ["/components"]);
    }
}
