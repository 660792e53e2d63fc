package fake

// A Record is what a host knows of a running container without asking the runtime: on a real node its log's name in
// /var/log/containers says as much.
type Record struct {
	ID        string
	Name      string
	Namespace string
	Pod       string
	PodUID    string
}

// Records returns a record of each running container, in the order in which they were made. No latency and no fault of
// the scenario plays a part.
func (s *Server) Records() []Record {
	s.store.mu.RLock()
	defer s.store.mu.RUnlock()
	var list []Record
	for c := range s.store.containers.all() {
		if !c.running() {
			continue
		}
		meta := c.sandbox.meta
		list = append(list, Record{
			ID: c.id, Name: c.name, Namespace: meta.GetNamespace(), Pod: meta.GetName(), PodUID: meta.GetUid(),
		})
	}
	return list
}
