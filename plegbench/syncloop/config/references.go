package config

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// checkReferences refuses a static pod that needs objects of the API server (HasAPIObjectReference in pkg/api/pod/util.go
// upstream). With allowed, ConfigMaps, Secrets and service accounts are there without it.
func checkReferences(p *v1.Pod, allowed bool) error {
	found := ""
	see := func(there bool, kind string) {
		if there && found == "" {
			found = kind
		}
	}
	see(!allowed && p.Spec.ServiceAccountName != "", "serviceaccounts")
	see(!allowed && len(p.Spec.ImagePullSecrets) > 0, "secrets")
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			for _, from := range list[i].EnvFrom {
				see(!allowed && from.SecretRef != nil, "secrets")
				see(!allowed && from.ConfigMapRef != nil, "configmaps")
			}
			for _, e := range list[i].Env {
				see(!allowed && e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil, "secrets")
				see(!allowed && e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil, "configmaps")
			}
		}
	}
	see(len(p.Spec.ResourceClaims) > 0, "resourceclaims")
	for _, v := range p.Spec.Volumes {
		see(!allowed && v.ConfigMap != nil, "configmaps (via configmap volumes)")
		see(!allowed && v.Secret != nil, "secrets (via secret volumes)")
		see(v.CSI != nil, "csidrivers (via CSI volumes)")
		see(v.PersistentVolumeClaim != nil, "persistentvolumeclaims")
		see(v.Ephemeral != nil, "persistentvolumeclaims (via ephemeral volumes)")
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			see(!allowed && s.ConfigMap != nil, "configmaps (via projected volumes)")
			see(!allowed && s.Secret != nil, "secrets (via projected volumes)")
			see(!allowed && s.ServiceAccountToken != nil, "serviceaccounts (via projected volumes)")
			see(s.ClusterTrustBundle != nil, "clustertrustbundles")
			see(s.PodCertificate != nil, "podcertificates")
		}
	}
	if found == "" {
		return nil
	}
	return fmt.Errorf("static pods may not reference %s: bind the pod through the API server, or remove the reference", found)
}
