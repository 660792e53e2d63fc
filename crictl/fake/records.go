package fake

// A Record names a running container as a real host knows it without the runtime, by the name of its log in
// /var/log/containers.
type Record struct {
	ID        string
	Name      string
	Namespace string
	Pod       string
	PodUID    string
}

// Records returns a record of each running container, in the order of their creation. Latencies and faults of the
// scenario do not apply.
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
