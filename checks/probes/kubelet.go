package probes

import (
	"context"
	"errors"

	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/kubelet"
)

// defaultKubeletDir is --root-dir's default.
const defaultKubeletDir = "/var/lib/kubelet"

func settingsProbe() Probe {
	return probe(Probe{
		ID: "kubelet.settings", Limit: quickLook, Cheap: true,
		Text: "The running kubelet's configuration file, its drop-ins, and its flags above both.",
	}, func(n *facts.Node) *facts.Reading[kubelet.Settings] { return &n.Settings },
		func(ctx context.Context, s *Input, _ facts.Node) (kubelet.Settings, error) {
			if s.KubeletPID == 0 {
				if err := host.Hidden(s.Root); err != nil {
					return kubelet.Settings{}, err
				}
				return kubelet.Settings{}, skip{"no kubelet runs here"}
			}
			return kubelet.ReadSettings(ctx, s.Root, s.KubeletPID)
		})
}

func healthProbe() Probe {
	return probe(Probe{
		// Its time is for a slow refusal, and then the read-only port.
		ID: "kubelet.health", Limit: 2 * patientOne, Cheap: true, After: []string{"kubelet.settings"},
		Text: "The kubelet's health port, which answers as long as its process runs, and, where a credential " +
			"allows, its server: /healthz/syncloop, /metrics, /configz. Where no kubelet runs and one was set up, " +
			"whether anybody listens on its health port.",
		Needs: "for the server a token, a certificate, or the read-only port",
	}, func(n *facts.Node) *facts.Reading[kubelet.Health] { return &n.Health },
		func(ctx context.Context, s *Input, seen facts.Node) (kubelet.Health, error) {
			if s.KubeletPID == 0 {
				h, err := kubelet.AskPing(ctx, s.Root)
				if errors.Is(err, kubelet.ErrNoNode) {
					err = skip{err.Error()}
				}
				return h, err
			}
			return kubelet.AskHealth(ctx, s.Root, seen.Settings.Value, s.Credentials)
		})
}

func certificatesProbe() Probe {
	return probe(Probe{
		ID: "kubelet.certificates", Limit: quickLook, Cheap: true, After: []string{"kubelet.settings"}, Needs: "root",
		Text: "From when to when the kubelet's client and serving certificates hold.",
	}, func(n *facts.Node) *facts.Reading[[]kubelet.Certificate] { return &n.Certificates },
		func(ctx context.Context, s *Input, seen facts.Node) ([]kubelet.Certificate, error) {
			list, err := kubelet.ReadCertificates(ctx, s.Root, seen.Settings.Value)
			if err != nil && len(list) == 0 && s.KubeletPID == 0 {
				err = skip{"no kubelet runs here, and it left none where kubeadm puts them"}
			}
			return list, err
		})
}

func serverProbe() Probe {
	return probe(Probe{
		ID: "kubelet.apiserver", Limit: patientOne, After: []string{"kubelet.settings"}, Needs: "root, to read the kubelet's kubeconfig",
		Text: "The API server that the kubelet reports to: reached or not, its certificate, its clock, and the " +
			"age of this node's lease. The only connection of kdiag's that leaves the node; --no-api-server " +
			"leaves it out.",
	}, func(n *facts.Node) *facts.Reading[kubelet.Server] { return &n.Server },
		func(ctx context.Context, s *Input, seen facts.Node) (kubelet.Server, error) {
			switch {
			case !s.APIServer:
				return kubelet.Server{}, skip{"not asked (--no-api-server)"}
			case seen.Settings.Skipped:
				return kubelet.Server{}, skip{seen.Settings.Missing}
			case seen.Settings.Value.Kubeconfig == "":
				return kubelet.Server{}, skip{"the kubelet names none"}
			}
			return kubelet.AskServer(ctx, s.Root, seen.Settings.Value)
		})
}

func cniProbe() Probe {
	return probe(Probe{
		ID: "kubelet.cni", Limit: quickLook, Cheap: true,
		Text: "The CNI configuration that the runtime would load, and whether the programs that it names are there.",
	}, func(n *facts.Node) *facts.Reading[kubelet.CNI] { return &n.CNI },
		func(ctx context.Context, s *Input, _ facts.Node) (kubelet.CNI, error) {
			return kubelet.ReadCNI(ctx, s.Root)
		})
}

func driverProbe() Probe {
	return probe(Probe{
		ID: "runtime.driver", Limit: patientOne, Cheap: true, Needs: "a runtime that answers RuntimeConfig " +
			"(containerd 2.0, CRI-O 1.28)",
		Text: "Which cgroup driver the runtime says to use.",
	}, func(n *facts.Node) *facts.Reading[string] { return &n.RuntimeDriver },
		func(ctx context.Context, s *Input, _ facts.Node) (string, error) {
			if s.RuntimeDriver == nil {
				return "", skip{"no runtime was asked"}
			}
			return s.RuntimeDriver(ctx)
		})
}

func sandboxImageProbe() Probe {
	return probe(Probe{
		ID: "runtime.sandboximage", Limit: patientOne, Needs: "a runtime that says it in a verbose Status " +
			"(containerd 1, CRI-O)",
		Text: "Which image the runtime makes sandboxes of (sandboxImage of its configuration), and whether that " +
			"is on the node (ImageStatus).",
	}, func(n *facts.Node) *facts.Reading[facts.SandboxImage] { return &n.SandboxImage },
		func(ctx context.Context, s *Input, _ facts.Node) (facts.SandboxImage, error) {
			if s.SandboxImage == nil {
				return facts.SandboxImage{}, skip{"no runtime was asked"}
			}
			return s.SandboxImage(ctx)
		})
}
