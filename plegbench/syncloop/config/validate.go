package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// validate refuses pods that no part of the syncLoop could handle: without names that can be part of a path, without
// containers, or with a restart policy that does not exist. The API's other rules (pkg/apis/core/validation upstream)
// are not checked; what breaks them fails where it is used.
func validate(p *v1.Pod) error {
	var errs []string
	check := func(field, value string, rule func(string) []string) {
		for _, problem := range rule(value) {
			errs = append(errs, fmt.Sprintf("%s %q: %s", field, value, problem))
		}
	}
	check("metadata.name", p.Name, validation.IsDNS1123Subdomain)
	check("metadata.namespace", p.Namespace, validation.IsDNS1123Label)
	for _, v := range p.Spec.Volumes {
		check("spec.volumes.name", v.Name, validation.IsDNS1123Label)
	}
	names := map[string]bool{}
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		check("spec.containers.name", c.Name, validation.IsDNS1123Label)
		if names[c.Name] {
			errs = append(errs, fmt.Sprintf("spec.containers.name %q: more than one container has this name", c.Name))
		}
		names[c.Name] = true
		if c.Image == "" {
			errs = append(errs, fmt.Sprintf("container %q has no image", c.Name))
		}
	}
	if len(p.Spec.Containers) == 0 {
		errs = append(errs, "spec.containers is empty")
	}
	policies := []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever}
	if !slices.Contains(policies, p.Spec.RestartPolicy) {
		errs = append(errs, fmt.Sprintf("spec.restartPolicy %q: must be one of %v", p.Spec.RestartPolicy, policies))
	}
	if *p.Spec.TerminationGracePeriodSeconds < 0 {
		errs = append(errs, "spec.terminationGracePeriodSeconds is negative")
	}
	if len(errs) > 0 {
		return errors.New("invalid pod: " + strings.Join(errs, "; "))
	}
	return nil
}
