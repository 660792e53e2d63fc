package remote

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func listed(id string, state runtimeapi.ContainerState) *runtimeapi.Container {
	return &runtimeapi.Container{
		Id: id, Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, State: state,
		Labels: map[string]string{"io.kubernetes.pod.uid": "u-" + id},
	}
}

// message encodes a list. Maps are written in one order, as a runtime that keeps its entries does in effect.
func message(t testing.TB, containers ...*runtimeapi.Container) []byte {
	t.Helper()
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(&runtimeapi.ListContainersResponse{Containers: containers})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func containerMemory() *memory[*runtimeapi.Container] {
	return newMemory(func() *runtimeapi.Container { return &runtimeapi.Container{} })
}

func TestListMemory(t *testing.T) {
	const running, exited = runtimeapi.ContainerState_CONTAINER_RUNNING, runtimeapi.ContainerState_CONTAINER_EXITED
	a, b, c, bExited := listed("a", running), listed("b", running), listed("c", running), listed("b", exited)
	unknown := protowire.AppendVarint(protowire.AppendTag(message(t, a), 7, protowire.VarintType), 1)
	type step struct {
		message []byte
		part    bool // the list had a filter
		want    []*runtimeapi.Container
		fails   bool
		known   int
	}
	for name, steps := range map[string][]step{
		"again in another order": {{message: message(t, a, b), want: []*runtimeapi.Container{a, b}, known: 2}, {message: message(t, b, a), want: []*runtimeapi.Container{b, a}, known: 2}},
		"changed":                {{message: message(t, a, b), want: []*runtimeapi.Container{a, b}, known: 2}, {message: message(t, a, bExited), want: []*runtimeapi.Container{a, bExited}, known: 2}},
		"gone":                   {{message: message(t, a, b), want: []*runtimeapi.Container{a, b}, known: 2}, {message: message(t, a), want: []*runtimeapi.Container{a}, known: 1}, {known: 0}},
		"twice in one list":      {{message: message(t, a, a), want: []*runtimeapi.Container{a, a}, known: 1}},
		"a part adds nothing and drops nothing": {
			{message: message(t, a, b), want: []*runtimeapi.Container{a, b}, known: 2},
			{message: message(t, c, b), part: true, want: []*runtimeapi.Container{c, b}, known: 2},
		},
		"cut off":       {{message: message(t, a, b), want: []*runtimeapi.Container{a, b}, known: 2}, {message: message(t, c, b)[:20], fails: true, known: 0}},
		"unknown field": {{message: unknown, fails: true, known: 0}},
		"a part cut off": {
			{message: message(t, a), want: []*runtimeapi.Container{a}, known: 1}, {message: message(t, b)[:9], part: true, fails: true, known: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := containerMemory()
			for i, s := range steps {
				got, ok := m.decode(s.message, !s.part)
				if diff := cmp.Diff(slices.Concat(s.want), slices.Concat(got), protocmp.Transform()); diff != "" || ok == s.fails || len(m.known) != s.known {
					t.Errorf("list %d: decoded %v, %d known, want %d; -want +got\n%s", i, ok, len(m.known), s.known, diff)
				}
			}
		})
	}
}

func TestListMemoryShares(t *testing.T) {
	m := containerMemory()
	data := message(t, listed("a", 1), listed("b", 1))
	first, _ := m.decode(data, true)
	again, _ := m.decode(data, true)
	part, _ := m.decode(data, false)
	for i := range first {
		if first[i] != again[i] || first[i] != part[i] {
			t.Errorf("entry %d was decoded anew", i)
		}
	}
	if n := testing.AllocsPerRun(100, func() { m.decode(data, true) }); n > 1 {
		t.Errorf("%v allocations for a list without change; only that of the slice is needed", n)
	}
}

// FuzzListMemory holds decoding through the memory to the plain decoder, over three lists in a row and the first again.
func FuzzListMemory(f *testing.F) {
	a, b := message(f, listed("a", 1)), message(f, listed("b", 2))
	both := slices.Concat(a, b)
	f.Add(a, both, b, false)
	f.Add(both, both, slices.Concat(both, a), true)
	f.Add(both[:len(both)-1], both, []byte{}, false)
	f.Add(protowire.AppendVarint(protowire.AppendTag(nil, 9, protowire.VarintType), 1), a, []byte{0x0a, 0}, true)
	f.Add([]byte{0x0a, 3, 0x0a, 1, 0xff}, []byte{0x8a, 0, 0}, []byte{0x0b, 0x0c}, false)
	f.Fuzz(func(t *testing.T, first, second, third []byte, part bool) {
		s := &Service{containers: containerMemory()}
		for i, data := range [][]byte{first, second, third, first} {
			var filter *runtimeapi.ContainerFilter
			if part && i == 1 {
				filter = &runtimeapi.ContainerFilter{Id: "x"}
			}
			var want, got runtimeapi.ListContainersResponse
			wantErr := proto.Unmarshal(data, &want)
			gotErr := s.containerCodec(filter).Unmarshal(pieces(data), &got)
			if (wantErr == nil) != (gotErr == nil) || wantErr != nil && tail(wantErr) != tail(gotErr) {
				t.Fatalf("list %d: %v, want %v", i, gotErr, wantErr)
			}
			if wantErr == nil && !proto.Equal(&want, &got) {
				t.Fatalf("list %d: %v, want %v", i, &got, &want)
			}
			if len(s.containers.known) > len(want.Containers)+len(got.Containers) && filter == nil {
				t.Fatalf("list %d of %d: %d remembered", i, len(want.Containers), len(s.containers.known))
			}
		}
	})
}

// pieces cuts a message as the network does.
func pieces(data []byte) mem.BufferSlice {
	var out mem.BufferSlice
	for piece := range slices.Chunk(data, 7) {
		out = append(out, mem.SliceBuffer(piece))
	}
	return out
}

// tail is an error's text from its last colon on: gRPC's codec adds words of its own before.
func tail(err error) string {
	s := err.Error()
	return strings.TrimSpace(s[strings.LastIndex(s, ":")+1:])
}

// A lister is a runtime with one list, which changes now and then.
type lister struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	calls atomic.Int64
}

func (l *lister) ListContainers(_ context.Context, r *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	n := l.calls.Add(1)
	out := &runtimeapi.ListContainersResponse{}
	for i := range 50 {
		if id := fmt.Sprint(i); r.GetFilter().GetId() == "" || r.GetFilter().GetId() == id {
			out.Containers = append(out.Containers, listed(id, runtimeapi.ContainerState((n/10+int64(i))%3)))
		}
	}
	return out, nil
}

func (l *lister) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{Items: []*runtimeapi.PodSandbox{{Id: "s"}}}, nil
}

// TestListsAtTheSameTime is for the race detector, and for the codec's way through gRPC.
func TestListsAtTheSameTime(t *testing.T) {
	l := bufconn.Listen(1 << 16)
	srv := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(srv, &lister{})
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(l) }) // ends with Stop
	defer wg.Wait()
	defer srv.Stop()
	s, err := Dial("unix:///x.sock", Options{
		Log: logr.Discard(), Dialer: func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var callers sync.WaitGroup
	for c := range 4 {
		callers.Go(func() {
			for range 50 {
				filter := &runtimeapi.ContainerFilter{}
				want := 50
				if c == 0 {
					filter.Id, want = "7", 1
				}
				list, err := s.ListContainers(t.Context(), filter)
				if err != nil || len(list) != want || !strings.HasPrefix(list[0].GetLabels()["io.kubernetes.pod.uid"], "u-") {
					t.Errorf("%d containers, %v", len(list), err)
				}
			}
		})
	}
	callers.Wait()
	if list, err := s.ListPodSandbox(t.Context(), nil); err != nil || len(list) != 1 || list[0].GetId() != "s" {
		t.Errorf("%v, %v", list, err)
	}
}
