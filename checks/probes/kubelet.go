package probes

import (
	"context"
	"errors"

	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/kubelet"
)

// kubeletProbes returns the probes of the kubelet's endpoints and files, and of the runtime's configuration.
func kubeletProbes() []Probe {
	afterSettings := []string{"kubelet.settings"}
	return []Probe{
		probe(Probe{ID: "kubelet.settings", Limit: quickLook, Cheap: true},
			func(n *facts.Node) *facts.Reading[kubelet.Settings] { return &n.Settings }, readSettings),
		// The time of health is for a slow refusal, and then the read-only port.
		probe(Probe{ID: "kubelet.health", Limit: 2 * longLook, Cheap: true, After: afterSettings},
			func(n *facts.Node) *facts.Reading[kubelet.Health] { return &n.Health }, askHealth),
		probe(Probe{ID: "kubelet.certificates", Limit: quickLook, Cheap: true, After: afterSettings},
			func(n *facts.Node) *facts.Reading[[]kubelet.Certificate] { return &n.Certificates }, readCertificates),
		probe(Probe{ID: "kubelet.apiserver", Limit: longLook, Cheap: true, After: afterSettings},
			func(n *facts.Node) *facts.Reading[kubelet.Server] { return &n.Server }, askServer),
		probe(Probe{ID: "kubelet.pods", Limit: longLook, Cheap: true, Walks: true, After: afterSettings},
			func(n *facts.Node) *facts.Reading[[]kubelet.Pod] { return &n.Pods },
			func(ctx context.Context, s *Input, seen facts.Node) ([]kubelet.Pod, error) {
				if s.KubeletPID == 0 {
					return nil, skip{"no kubelet runs here"}
				}
				return kubelet.AskPods(ctx, s.Root, seen.Settings.Value, s.Credentials, s.APIServer)
			}),
		probe(Probe{ID: "kubelet.cni", Limit: longLook, Cheap: true, After: afterSettings},
			func(n *facts.Node) *facts.Reading[kubelet.CNI] { return &n.CNI },
			func(ctx context.Context, s *Input, seen facts.Node) (kubelet.CNI, error) {
				setup, _ := askRuntime(ctx, s.Setup) // without it the usual folders are read
				return kubelet.ReadCNI(ctx, s.Root, setup, seen.Settings.Value)
			}),
		probe(Probe{ID: "runtime.pulls", Limit: quickLook, Cheap: true},
			func(n *facts.Node) *facts.Reading[[]kubelet.Pull] { return &n.Pulls },
			func(ctx context.Context, s *Input, _ facts.Node) ([]kubelet.Pull, error) {
				setup, err := askRuntime(ctx, s.Setup)
				if err != nil || setup.PID == 0 {
					return nil, err
				}
				return kubelet.ReadPulls(s.Root, setup.PID)
			}),
		probe(Probe{ID: "runtime.driver", Limit: quickLook, Cheap: true},
			func(n *facts.Node) *facts.Reading[string] { return &n.RuntimeDriver },
			func(ctx context.Context, s *Input, _ facts.Node) (string, error) {
				return askRuntime(ctx, s.RuntimeDriver)
			}),
		probe(Probe{ID: "runtime.sandboximage", Limit: longLook},
			func(n *facts.Node) *facts.Reading[facts.SandboxImage] { return &n.SandboxImage },
			func(ctx context.Context, s *Input, _ facts.Node) (facts.SandboxImage, error) {
				return askRuntime(ctx, s.SandboxImage)
			}),
	}
}

func readSettings(ctx context.Context, s *Input, _ facts.Node) (kubelet.Settings, error) {
	if s.KubeletPID != 0 {
		return kubelet.ReadSettings(ctx, s.Root, s.KubeletPID)
	}
	if _, err := s.Population(ctx); err != nil {
		return kubelet.Settings{}, err
	}
	return kubelet.Settings{}, skip{"no kubelet runs here"}
}

func askHealth(ctx context.Context, s *Input, seen facts.Node) (kubelet.Health, error) {
	if s.KubeletPID != 0 {
		return kubelet.AskHealth(ctx, s.Root, seen.Settings.Value, s.Credentials)
	}
	h, err := kubelet.AskPing(ctx, s.Root)
	if errors.Is(err, kubelet.ErrNoNode) {
		err = skip{err.Error()}
	}
	return h, err
}

func readCertificates(ctx context.Context, s *Input, seen facts.Node) ([]kubelet.Certificate, error) {
	list, err := kubelet.ReadCertificates(ctx, s.Root, seen.Settings.Value)
	if err != nil && len(list) == 0 && s.KubeletPID == 0 {
		err = skip{"no kubelet runs here, and it left none where kubeadm puts them"}
	}
	return list, err
}

func askServer(ctx context.Context, s *Input, seen facts.Node) (kubelet.Server, error) {
	switch {
	case !s.APIServer:
		return kubelet.Server{}, skip{"not asked (--no-api-server)"}
	case seen.Settings.Skipped:
		return kubelet.Server{}, skip{seen.Settings.Missing}
	case seen.Settings.Value.Kubeconfig == "":
		return kubelet.Server{}, skip{"the kubelet names none"}
	}
	return kubelet.AskServer(ctx, s.Root, seen.Settings.Value)
}

// askRuntime asks the runtime, where there is one to ask.
func askRuntime[T any](ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	if ask == nil {
		var none T
		return none, skip{"no runtime was asked"}
	}
	return ask(ctx)
}
