package crictl

import (
	gocmp "cmp"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/fake/faketest"
	"github.com/kdiag/kdiag/internal/testkit"
)

// kubeletLists are the lists of so many pods, with a dead sandbox and so many exited containers each: entries as a
// kubelet's objects have them, of about 900 bytes.
func kubeletLists(
	t testing.TB, pods, exited int,
) (*runtimeapi.ListContainersResponse, *runtimeapi.ListPodSandboxResponse) {
	t.Helper()
	conn, err := NewConn("/run/fake.sock", faketest.Serve(t, fake.Scenario{
		Name: "lists", Limits: fake.MessageLimits{Send: 1 << 30},
		Pods: []fake.PodGroup{{
			Name: "report-worker", Count: pods, DeadBefore: 1,
			Containers: []fake.ContainerGroup{{Name: "worker", State: "exited", Exited: exited - 1}},
		}},
	}), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
	testkit.Must(t, err)
	defer conn.Close()
	runtime := runtimeapi.NewRuntimeServiceClient(conn)
	containers, err := runtime.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
	testkit.Must(t, err)
	sandboxes, err := runtime.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
	testkit.Must(t, err)
	return containers, sandboxes
}

func mustMarshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	testkit.Must(t, err)
	return data
}

// cut puts data into buffers of at most n bytes, as gRPC has it after receiving frames. The first is empty.
func cut(data []byte, n int) mem.BufferSlice {
	out := mem.BufferSlice{mem.SliceBuffer(nil)}
	for len(data) > n {
		out = append(out, mem.SliceBuffer(data[:n]))
		data = data[n:]
	}
	return append(out, mem.SliceBuffer(data))
}

// unmarshal decodes a list with the generated types, and returns the sizes of its entries.
func unmarshal(t testing.TB, data []byte, list proto.Message) (sizes []uint32, _ error) {
	t.Helper()
	if err := proto.Unmarshal(data, list); err != nil {
		return nil, err
	}
	for len(data) > 0 {
		num, typ, n := protowire.ConsumeField(data)
		if n < 0 {
			t.Fatalf("a message that the generated types accept: %v", protowire.ParseError(n))
		}
		if num == 1 && typ == protowire.BytesType {
			sizes = append(sizes, uint32(n))
		}
		data = data[n:]
	}
	return sizes, nil
}

// naiveContainers decodes a list as the decoder must, with the generated types.
func naiveContainers(t testing.TB, data []byte) (out []Container, _ error) {
	t.Helper()
	var resp runtimeapi.ListContainersResponse
	sizes, err := unmarshal(t, data, &resp)
	for i, c := range resp.GetContainers()[:len(sizes)] {
		l := c.GetLabels()
		state := ContainerUnknown
		if s := c.GetState(); s >= 0 && s <= 3 {
			state = ContainerState(s)
		}
		out = append(out, Container{
			ID: c.GetId(), SandboxID: c.GetPodSandboxId(), Name: gocmp.Or(c.GetMetadata().GetName(), l[LabelContainerName]),
			Pod:       &Pod{Namespace: l[LabelPodNamespace], Name: l[LabelPodName], UID: l[LabelPodUID]},
			CreatedAt: c.GetCreatedAt(), Attempt: c.GetMetadata().GetAttempt(), State: state, Size: sizes[i],
		})
	}
	return out, err
}

func naiveSandboxes(t testing.TB, data []byte) (out []PodSandbox, _ error) {
	t.Helper()
	var resp runtimeapi.ListPodSandboxResponse
	sizes, err := unmarshal(t, data, &resp)
	for i, s := range resp.GetItems()[:len(sizes)] {
		l, m := s.GetLabels(), s.GetMetadata()
		state := SandboxNotReady
		if s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			state = SandboxReady
		}
		out = append(out, PodSandbox{
			ID: s.GetId(),
			Pod: &Pod{
				Namespace: gocmp.Or(m.GetNamespace(), l[LabelPodNamespace]),
				Name:      gocmp.Or(m.GetName(), l[LabelPodName]),
				UID:       gocmp.Or(m.GetUid(), l[LabelPodUID]),
			},
			Owner: ownerOf(gocmp.Or(m.GetName(), l[LabelPodName]), l[LabelTemplateHash],
				gocmp.Or(l[LabelJob], l[LabelJobOld]), gocmp.Or(l[LabelSetPod], l[LabelPodIndex]), l[LabelRevision]),
			ConfigSource: s.GetAnnotations()[AnnotationConfigSource],
			CreatedAt:    s.GetCreatedAt(), Attempt: m.GetAttempt(), Size: sizes[i], State: state,
		})
	}
	return out, err
}

// oddContainers are messages in corners of the encoding that no runtime uses and that a decoder may get wrong. Each is
// one entry's bytes.
func oddContainers() map[string][]byte {
	str := func(b []byte, num protowire.Number, s string) []byte {
		return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
	}
	num := func(b []byte, num protowire.Number, v uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), v)
	}
	msg := func(b []byte, n protowire.Number, m []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), m)
	}
	label := func(parts ...string) []byte {
		var b []byte
		for i, p := range parts {
			b = str(b, protowire.Number(i%2+1), p)
		}
		return b
	}
	group := protowire.AppendTag(num(protowire.AppendTag(nil, 77, protowire.StartGroupType), 1, 5), 77,
		protowire.EndGroupType)
	return map[string][]byte{
		"empty":           {},
		"metadata merges": msg(msg(nil, 3, num(str(nil, 1, "a"), 2, 7)), 3, str(nil, 1, "b")),
		"label twice":     msg(msg(nil, 8, label(LabelPodUID, "u1")), 8, label(LabelPodUID, "u2")),
		"sandbox: label and annotation swapped": msg(msg(nil, 5, label(AnnotationConfigSource, "api")), 6,
			label(LabelPodUID, "u1")),
		"name from the label": msg(nil, 8, label(LabelContainerName, "from-label")),
		"state unheard of":    num(nil, 6, 17),
		"unknown group":       append(group, str(nil, 1, "after")...),
		"truncated string":    {0x0a, 0x05, 'a'},
		"endless varint":      {0x30, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01},
		"id not UTF-8":        str(nil, 1, "\xff"),
	}
}

// fuzzDecode compares a decoder with its naive twin, for messages whole and cut. It may accept messages that the
// generated types reject for a string that is not UTF-8, or for an error in a field that is not kept. The seeds are
// lists of good and odd entries, the odd ones alone and between two good ones, so that an error in the middle and the
// sizes around it show.
func fuzzDecode[T any, M proto.Message](
	f *testing.F, good []M, fresh func() *listDecoder[T], naive func(testing.TB, []byte) ([]T, error),
) {
	list := func(entries ...[]byte) (out []byte) {
		for _, e := range entries {
			out = protowire.AppendBytes(protowire.AppendTag(out, 1, protowire.BytesType), e)
		}
		return out
	}
	var many [][]byte
	for _, m := range good {
		many = append(many, mustMarshal(f, m))
	}
	f.Add(list(many...), uint64(2))
	for _, entry := range oddContainers() {
		f.Add(entry, uint64(1))
		f.Add(list(entry), uint64(7))
		f.Add(list(many[0], entry, many[1]), uint64(7))
	}
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		want, wantErr := naive(t, data)
		for _, n := range []int{max(len(data), 1), 1, 2 + int(seed%30)} {
			d := fresh()
			err := d.decode(cut(data, n))
			switch {
			case err != nil && (wantErr == nil || len(d.entries) != 0):
				t.Fatalf("in pieces of %d: error %v with %d entries, generated types %v", n, err, len(d.entries), wantErr)
			case err != nil, wantErr != nil, len(want) == 0 && len(d.entries) == 0:
			case !reflect.DeepEqual(want, d.entries): // the fuzzer comes here often, and cmp is slow
				t.Fatalf("in pieces of %d (-generated +kdiag):\n%s", n, cmp.Diff(want, d.entries))
			}
		}
	})
}

func FuzzDecodeContainers(f *testing.F) {
	good, _ := kubeletLists(f, 6, 10)
	fuzzDecode(f, good.GetContainers(), newContainerDecoder, naiveContainers)
}

func FuzzDecodeSandboxes(f *testing.F) {
	_, good := kubeletLists(f, 30, 1)
	fuzzDecode(f, good.GetItems(), newSandboxDecoder, naiveSandboxes)
}

// BenchmarkDecodeContainers decodes 100,000 containers of 5,000 pods, twenty exited attempts each, as a node with
// crash loops and no garbage collection has them. kdiag gets the message in the pieces of 16 KiB in which gRPC has it;
// the generated types get it in one piece, which gRPC's own codec would first have to make.
func BenchmarkDecodeContainers(b *testing.B) {
	const pods, attempts = 5000, 20
	list, _ := kubeletLists(b, pods, attempts)
	data := mustMarshal(b, list)
	list = nil
	b.Run("kdiag", func(b *testing.B) {
		in := cut(data, 16<<10)
		b.ReportAllocs()
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			d := newContainerDecoder()
			if err := d.decode(in); err != nil || len(d.entries) != pods*attempts {
				b.Fatal(len(d.entries), err)
			}
		}
	})
	b.Run("generated", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			var resp runtimeapi.ListContainersResponse
			if err := proto.Unmarshal(data, &resp); err != nil || len(resp.Containers) != pods*attempts {
				b.Fatal(len(resp.Containers), err)
			}
		}
	})
}
