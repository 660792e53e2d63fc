//go:build e2e

package kubelet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
)

// A recorder is a runtime's socket that passes each call on and keeps those that change pods.
type recorder struct {
	runtime *grpc.ClientConn

	mu      sync.Mutex
	relists struct{ asked, answered int } // calls of ListContainers
	owners  map[string]object             // of sandboxes and containers, by their ids
	calls   map[object][]string
	configs map[object]string // what the first sandbox or container was created with, as JSON
}

// An object is a pod's container, or its sandbox, which has no name.
type object struct{ pod, uid, container string }

// record serves a recorder of the runtime at endpoint until the test ends.
func record(t *testing.T, endpoint, socket string) *recorder {
	t.Helper()
	r := &recorder{owners: map[string]object{}, calls: map[object][]string{}, configs: map[object]string{}}
	var err error
	r.runtime, err = grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
	e2etest.Must(t, err)
	lis, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	e2etest.Must(t, err)
	server := grpc.NewServer(grpc.UnknownServiceHandler(r.pass))
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(lis) })
	t.Cleanup(func() {
		server.Stop()
		serving.Wait()
		_ = r.runtime.Close()
	})
	return r
}

// pass passes a call on. An empty message keeps the fields that it does not know, so it carries any request.
func (r *recorder) pass(_ any, server grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(server)
	ctx, cancel := context.WithCancel(server.Context())
	defer cancel()
	backend, err := r.runtime.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	var request emptypb.Empty
	if err := server.RecvMsg(&request); err != nil {
		return err
	}
	r.asked(path.Base(method), &request)
	_ = backend.SendMsg(&request) // an error shows when the answer is received
	_ = backend.CloseSend()
	for {
		var answer emptypb.Empty
		if err := backend.RecvMsg(&answer); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		r.answered(path.Base(method), &request, &answer)
		if err := server.SendMsg(&answer); err != nil {
			return err
		}
	}
}

// as reads a message as one of CRI.
func as[T proto.Message](from *emptypb.Empty, to T) T {
	data, err := proto.Marshal(from)
	if err == nil {
		err = proto.Unmarshal(data, to)
	}
	if err != nil {
		panic(err)
	}
	return to
}

func sandboxOf(c *runtimeapi.PodSandboxConfig) object {
	return object{pod: c.GetMetadata().GetName(), uid: c.GetMetadata().GetUid()}
}

func containerOf(r *runtimeapi.CreateContainerRequest) object {
	o := sandboxOf(r.GetSandboxConfig())
	o.container = r.GetConfig().GetMetadata().GetName()
	return o
}

// asked keeps a request.
func (r *recorder) asked(name string, request *emptypb.Empty) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch name {
	case "ListContainers":
		r.relists.asked++
	case "RunPodSandbox":
		m := as(request, &runtimeapi.RunPodSandboxRequest{})
		o := sandboxOf(m.GetConfig())
		r.keep(o, fmt.Sprintf("Run #%d", m.GetConfig().GetMetadata().GetAttempt()))
		r.config(o, m.GetConfig())
	case "CreateContainer":
		m := as(request, &runtimeapi.CreateContainerRequest{})
		o := containerOf(m)
		r.keep(o, fmt.Sprintf("Create #%d", m.GetConfig().GetMetadata().GetAttempt()))
		r.config(o, m.GetConfig())
	case "StartContainer":
		r.keep(r.owners[as(request, &runtimeapi.StartContainerRequest{}).GetContainerId()], "Start")
	case "StopContainer":
		m := as(request, &runtimeapi.StopContainerRequest{})
		r.keep(r.owners[m.GetContainerId()], fmt.Sprintf("Stop %ds", m.GetTimeout()))
	case "StopPodSandbox":
		r.keep(r.owners[as(request, &runtimeapi.StopPodSandboxRequest{}).GetPodSandboxId()], "Stop")
	}
}

// answered keeps whose the new ids are.
func (r *recorder) answered(name string, request, answer *emptypb.Empty) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch name {
	case "RunPodSandbox":
		id := as(answer, &runtimeapi.RunPodSandboxResponse{}).GetPodSandboxId()
		r.owners[id] = sandboxOf(as(request, &runtimeapi.RunPodSandboxRequest{}).GetConfig())
	case "ListContainers":
		r.relists.answered++
	case "CreateContainer":
		id := as(answer, &runtimeapi.CreateContainerResponse{}).GetContainerId()
		r.owners[id] = containerOf(as(request, &runtimeapi.CreateContainerRequest{}))
	}
}

// relisted returns how often PLEG asked for all containers, and how often the runtime answered.
func (r *recorder) relisted() (asked, answered int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.relists.asked, r.relists.answered
}

// kill kills the first process of a pod's container.
func (r *recorder) kill(t *testing.T, uid, container string) {
	t.Helper()
	r.mu.Lock()
	var ids []string
	for id, o := range r.owners {
		if o.uid == uid && o.container == container {
			ids = append(ids, id)
		}
	}
	r.mu.Unlock()
	if len(ids) != 1 {
		t.Fatalf("containers %s of %s: %q", container, uid, ids)
	}
	status, err := runtimeapi.NewRuntimeServiceClient(r.runtime).ContainerStatus(t.Context(),
		&runtimeapi.ContainerStatusRequest{ContainerId: ids[0], Verbose: true})
	e2etest.Must(t, err)
	var info struct{ PID int }
	e2etest.Must(t, json.Unmarshal([]byte(status.GetInfo()["info"]), &info))
	e2etest.Must(t, unix.Kill(info.PID, unix.SIGKILL))
}

// keep adds a call to those about an object, unless it repeats the last one.
func (r *recorder) keep(o object, call string) {
	if all := r.calls[o]; len(all) == 0 || all[len(all)-1] != call {
		r.calls[o] = append(all, call)
	}
}

// config keeps the first configuration of an object.
func (r *recorder) config(o object, m proto.Message) {
	if r.configs[o] == "" {
		r.configs[o] = protojson.MarshalOptions{Multiline: true}.Format(m)
	}
}

// callsOf returns the calls about an object before the first restart that is not compared.
func (r *recorder) callsOf(o object) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.calls[o]
	if i := slices.Index(all, fmt.Sprintf("Create #%d", lastRestart+1)); i >= 0 {
		all = all[:i]
	}
	return slices.Clone(all)
}
