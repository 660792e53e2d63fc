package runoptions

import (
	"fmt"
	"os"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
	"k8s.io/klog/v2"
)

// Limits of a pod's resolv.conf (pkg/apis/core/validation upstream).
const (
	maxNameservers = 3
	maxSearches    = 32
	maxSearchChars = 2048
)

// ndots is the option of pods that use the cluster's DNS.
const ndots = "ndots:5"

// DNS is the pod's resolv.conf, by its policy, cut to what resolvers take. The error is of the node's own resolv.conf.
func (o *Options) DNS(p *v1.Pod) (*runtimeapi.DNSConfig, error) {
	var dns runtimeapi.DNSConfig
	if o.cfg.ResolvConf != "" {
		text, err := os.ReadFile(o.cfg.ResolvConf)
		if err != nil {
			return nil, fmt.Errorf("reading the node's DNS configuration: %w", err)
		}
		dns.Servers, dns.Searches, dns.Options = parseResolvConf(string(text))
	}
	switch policy := o.policy(p); {
	case policy == v1.DNSNone:
		dns = runtimeapi.DNSConfig{}
	case policy == v1.DNSClusterFirst:
		dns.Servers, dns.Options = slices.Clone(o.cfg.ClusterDNS), []string{ndots}
		if domain := o.cfg.ClusterDomain; domain != "" {
			dns.Searches = unique(append([]string{p.Namespace + ".svc." + domain, "svc." + domain, domain}, dns.Searches...))
		}
	case o.cfg.ResolvConf == "": // a name server of its own keeps the runtime from taking the node's
		dns.Servers, dns.Searches = o.localhosts(), []string{"."}
	}
	if c := p.Spec.DNSConfig; c != nil {
		dns.Servers = unique(append(dns.Servers, c.Nameservers...))
		dns.Searches = unique(append(dns.Searches, c.Searches...))
		for _, option := range c.Options {
			text := option.Name
			if option.Value != nil && *option.Value != "" {
				text += ":" + *option.Value
			}
			dns.Options = setOption(dns.Options, text)
		}
	}
	o.limit(p, &dns)
	return &dns, nil
}

// policy is the pod's, with what stands in for it: on the node's network the cluster's DNS must be asked for by its own
// policy, and without one there is only the node's.
func (o *Options) policy(p *v1.Pod) v1.DNSPolicy {
	policy := p.Spec.DNSPolicy
	switch policy {
	case v1.DNSNone, v1.DNSDefault:
		return policy
	case v1.DNSClusterFirst:
		if p.Spec.HostNetwork {
			return v1.DNSDefault
		}
	case v1.DNSClusterFirstWithHostNet:
	default:
		o.cfg.Log.Error(fmt.Errorf("invalid DNSPolicy=%v", policy),
			"Failed to get DNS type for pod. Falling back to DNSClusterFirst policy.", "pod", klog.KObj(p))
	}
	if len(o.cfg.ClusterDNS) > 0 {
		return v1.DNSClusterFirst
	}
	o.cfg.Recorder.Eventf(p, v1.EventTypeWarning, "MissingClusterDNS",
		"pod: %q. kubelet does not have ClusterDNS IP configured and cannot create Pod using %q policy. Falling back to %q policy.",
		pod.Format(p), v1.DNSClusterFirst, v1.DNSDefault)
	return v1.DNSDefault
}

func (o *Options) localhosts() []string {
	var servers []string
	for _, ip := range o.cfg.HostIPs() {
		if strings.Contains(ip, ":") {
			servers = append(servers, "::1")
		} else {
			servers = append(servers, "127.0.0.1")
		}
	}
	if len(servers) == 0 {
		return []string{"127.0.0.1"}
	}
	return servers
}

// limit cuts off what is too much, and says so.
func (o *Options) limit(p *v1.Pod, dns *runtimeapi.DNSConfig) {
	if len(dns.Servers) > maxNameservers {
		dns.Servers = dns.Servers[:maxNameservers]
		o.exceeded(p, "Nameserver limits exceeded",
			"Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: ", dns.Servers)
	}
	kept, length := []string(nil), -1
	for _, s := range dns.Searches[:min(len(dns.Searches), maxSearches)] {
		if len(s) > validation.DNS1123SubdomainMaxLength { // glibc 2.28 aborts on one
			continue
		}
		if length += 1 + len(s); length > maxSearchChars {
			break
		}
		kept = append(kept, s)
	}
	if len(kept) < len(dns.Searches) {
		dns.Searches = kept
		o.exceeded(p, "Search Line limits exceeded",
			"Search Line limits were exceeded, some search paths have been omitted, the applied search line is: ", kept)
	}
}

func (o *Options) exceeded(p *v1.Pod, message, event string, applied []string) {
	text := event + strings.Join(applied, " ")
	o.cfg.Log.Error(fmt.Errorf("%s", text), message, "pod", klog.KObj(p))
	o.cfg.Recorder.Event(p, v1.EventTypeWarning, "DNSConfigForming", text)
}

// parseResolvConf reads lines like
//
//	nameserver 10.0.0.53
//	search example.org example.net
//	options ndots:2 edns0
//
// Name servers and options add up, of search lines the last one holds. Other lines do not matter.
func parseResolvConf(text string) (servers, searches, options []string) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		switch fields[0] {
		case "nameserver":
			servers = append(servers, fields[1:min(2, len(fields))]...)
		case "search":
			searches = nil
			for _, s := range fields[1:] {
				if s != "." {
					searches = append(searches, strings.TrimSuffix(s, "."))
				}
			}
		case "options":
			for _, option := range fields[1:] {
				options = setOption(options, option)
			}
		}
	}
	return servers, searches, options
}

// setOption adds an option, in the place of an earlier one of the same name.
func setOption(options []string, option string) []string {
	name, _, _ := strings.Cut(option, ":")
	options = slices.DeleteFunc(slices.Clone(options), func(have string) bool {
		n, _, _ := strings.Cut(have, ":")
		return n == name
	})
	return append(options, option)
}

// unique keeps the first of each.
func unique(all []string) []string {
	var out []string
	for _, s := range all {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}
