package fault

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl/fake"
)

// statusPath is the method whose answer holds the runtime's conditions.
const statusPath = "/runtime.v1.RuntimeService/Status"

// requestTypes returns the type of the request of each RPC of both services of CRI v1, by the RPC's full name. Newer
// runtimes have RPCs that are not known here; they pass all the same.
func requestTypes() map[string]protoreflect.MessageType {
	all := map[string]protoreflect.MessageType{}
	services := (&runtimeapi.VersionRequest{}).ProtoReflect().Descriptor().ParentFile().Services()
	for i := range services.Len() {
		methods := services.Get(i).Methods()
		for j := range methods.Len() {
			m := methods.Get(j)
			all["/"+string(services.Get(i).FullName())+"/"+string(m.Name())] = messageType(m.Input())
		}
	}
	return all
}

func messageType(d protoreflect.MessageDescriptor) protoreflect.MessageType {
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		panic(err) // the descriptor comes from the same registry
	}
	return t
}

// decode returns a message of the type, or nil when data is none.
func decode(t protoreflect.MessageType, data []byte) proto.Message {
	m := t.New().Interface()
	if proto.Unmarshal(data, m) != nil {
		return nil // the runtime or the caller will say so better
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

// withConditions lays conditions over those of a StatusResponse, by type. What it does not understand it returns as
// it is.
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
		found := false
		for i, old := range answer.Status.Conditions {
			if old.GetType() == c.Type {
				answer.Status.Conditions[i], found = set, true
			}
		}
		if !found {
			answer.Status.Conditions = append(answer.Status.Conditions, set)
		}
	}
	rewritten, err := proto.Marshal(&answer)
	if err != nil {
		return data
	}
	return rewritten
}
