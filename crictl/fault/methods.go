package fault

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl/fake"
)

// statusPath is the method whose answer holds the runtime's conditions.
const statusPath = "/runtime.v1.RuntimeService/Status"

// decode returns the request of an RPC by its path, such as /runtime.v1.RuntimeService/Version; nil when it is none of
// CRI v1. Newer runtimes have RPCs that are not known here; they pass all the same.
func decode(path string, data []byte) proto.Message {
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(path, "/"), "/", "."))
	found, _ := protoregistry.GlobalFiles.FindDescriptorByName(name)
	method, ok := found.(protoreflect.MethodDescriptor)
	if !ok {
		return nil
	}
	kind, err := protoregistry.GlobalTypes.FindMessageByName(method.Input().FullName())
	if err != nil {
		return nil
	}
	m := kind.New().Interface()
	if proto.Unmarshal(data, m) != nil {
		return nil // the runtime answers with the error
	}
	return m
}

// itemsIn counts the entries of a list answer without decoding them. In all lists of runtime.v1, unary and streamed,
// they are field 1.
func itemsIn(data []byte) int {
	n := 0
	for len(data) > 0 {
		field, _, size := protowire.ConsumeField(data)
		if size < 0 {
			return n
		}
		if field == 1 {
			n++
		}
		data = data[size:]
	}
	return n
}

// withConditions lays conditions over those in a StatusResponse, by type. It returns a malformed response unchanged.
func withConditions(data []byte, conditions []fake.Condition) []byte {
	var answer runtimeapi.StatusResponse
	if proto.Unmarshal(data, &answer) != nil {
		return data
	}
	if answer.Status == nil {
		answer.Status = &runtimeapi.RuntimeStatus{}
	}
	for _, c := range conditions {
		set := &runtimeapi.RuntimeCondition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message}
		i := slices.IndexFunc(answer.Status.Conditions, func(old *runtimeapi.RuntimeCondition) bool {
			return old.GetType() == c.Type
		})
		if i >= 0 {
			answer.Status.Conditions[i] = set
		} else {
			answer.Status.Conditions = append(answer.Status.Conditions, set)
		}
	}
	rewritten, err := proto.Marshal(&answer)
	if err != nil {
		return data
	}
	return rewritten
}
