package volumemanager

import (
	"context"
	"errors"
	"fmt"
	"maps"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kdiag/kdiag/plegbench/syncloop/volumemanager/downward"
)

// A payload is what the files of a volume shall be, by their paths below it.
type payload map[string]file

type file struct {
	data []byte
	mode int32
	user *int64 // owner; nil is root
}

// defaultMode is that of files for which nothing else is said, by the API's defaults.
const defaultMode = 0o644

func modeOr(mode *int32, otherwise int32) int32 {
	if mode != nil {
		return *mode
	}
	return otherwise
}

// content collects what a volume of that pod shall hold.
func (m *Manager) content(ctx context.Context, pod *v1.Pod, v *v1.Volume) (payload, error) {
	switch {
	case v.ConfigMap != nil:
		s := v.ConfigMap
		return m.configMap(ctx, pod, s.Name, s.Items, s.Optional, modeOr(s.DefaultMode, defaultMode))
	case v.Secret != nil:
		s := v.Secret
		return m.secret(ctx, pod, s.SecretName, s.Items, s.Optional, modeOr(s.DefaultMode, defaultMode))
	case v.DownwardAPI != nil:
		return m.downward(pod, v.DownwardAPI.Items, modeOr(v.DownwardAPI.DefaultMode, defaultMode))
	}
	all := payload{}
	var problems []error
	for _, source := range v.Projected.Sources {
		p, err := m.projection(ctx, pod, source, modeOr(v.Projected.DefaultMode, defaultMode))
		problems = append(problems, err)
		maps.Copy(all, p)
	}
	return all, errors.Join(problems...)
}

func (m *Manager) projection(ctx context.Context, pod *v1.Pod, source v1.VolumeProjection, mode int32) (payload, error) {
	switch {
	case source.ConfigMap != nil:
		return m.configMap(ctx, pod, source.ConfigMap.Name, source.ConfigMap.Items, source.ConfigMap.Optional, mode)
	case source.Secret != nil:
		return m.secret(ctx, pod, source.Secret.Name, source.Secret.Items, source.Secret.Optional, mode)
	case source.DownwardAPI != nil:
		return m.downward(pod, source.DownwardAPI.Items, mode)
	case source.ServiceAccountToken != nil:
		return m.token(ctx, pod, source.ServiceAccountToken, mode)
	}
	return nil, errors.New("a projected source is none of configMap, secret, downwardAPI, serviceAccountToken")
}

func (m *Manager) configMap(
	ctx context.Context, pod *v1.Pod, name string, items []v1.KeyToPath, optional *bool, mode int32,
) (payload, error) {
	object, err := m.cfg.Objects.ConfigMap(ctx, pod.Namespace, name)
	if err != nil {
		return absent(optional, err)
	}
	data := map[string][]byte{}
	for k, v := range object.Data {
		data[k] = []byte(v)
	}
	maps.Copy(data, object.BinaryData)
	return choose("configmap", data, items, optional, mode)
}

func (m *Manager) secret(
	ctx context.Context, pod *v1.Pod, name string, items []v1.KeyToPath, optional *bool, mode int32,
) (payload, error) {
	object, err := m.cfg.Objects.Secret(ctx, pod.Namespace, name)
	if err != nil {
		return absent(optional, err)
	}
	return choose("secret", object.Data, items, optional, mode)
}

// absent makes an empty volume of an object that is not there, if it need not be.
func absent(optional *bool, err error) (payload, error) {
	if optional != nil && *optional && apierrors.IsNotFound(err) {
		return payload{}, nil
	}
	return nil, err
}

// choose takes the items out of the data, or all of it under its own names if there are none.
func choose(kind string, data map[string][]byte, items []v1.KeyToPath, optional *bool, mode int32) (payload, error) {
	p := payload{}
	if len(items) == 0 {
		for k, v := range data {
			p[k] = file{data: v, mode: mode}
		}
		return p, nil
	}
	for _, item := range items {
		v, ok := data[item.Key]
		if ok {
			p[item.Path] = file{data: v, mode: modeOr(item.Mode, mode)}
		} else if optional == nil || !*optional {
			return nil, fmt.Errorf("%s references non-existent key: %s", kind, item.Key)
		}
	}
	return p, nil
}

func (m *Manager) downward(pod *v1.Pod, items []v1.DownwardAPIVolumeFile, mode int32) (payload, error) {
	p := payload{}
	var problems []error
	for _, item := range items {
		var text string
		var err error
		switch {
		case item.FieldRef != nil:
			text, err = downward.Field(pod, item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			text, err = downward.Resource(item.ResourceFieldRef, pod, nil, m.cfg.Allocatable())
		}
		problems = append(problems, err)
		p[item.Path] = file{data: []byte(text), mode: modeOr(item.Mode, mode)}
	}
	return p, errors.Join(problems...)
}

// token is a token of the pod's service account, bound to the pod. It is for the eyes of the pod's user only if there is
// one user, and of its fsGroup (pkg/volume/projected/projected.go upstream).
func (m *Manager) token(
	ctx context.Context, pod *v1.Pod, source *v1.ServiceAccountTokenProjection, mode int32,
) (payload, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: source.ExpirationSeconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	if source.Audience != "" {
		request.Spec.Audiences = []string{source.Audience}
	}
	text, err := m.cfg.Objects.ServiceAccountToken(ctx, pod.Namespace, pod.Spec.ServiceAccountName, request)
	if err != nil {
		return nil, err
	}
	user := onlyUser(pod)
	if user != nil || fsGroup(pod) != nil {
		mode = 0o600
	}
	return payload{source.Path: {data: []byte(text), mode: mode, user: user}}, nil
}

// onlyUser is the user that all containers of a pod are said to run as; nil if there is no such user.
func onlyUser(pod *v1.Pod) *int64 {
	var only *int64
	for c := range containers(pod) {
		var user *int64
		if pod.Spec.SecurityContext != nil {
			user = pod.Spec.SecurityContext.RunAsUser
		}
		if c.SecurityContext != nil && c.SecurityContext.RunAsUser != nil {
			user = c.SecurityContext.RunAsUser
		}
		if user == nil || only != nil && *only != *user {
			return nil
		}
		only = user
	}
	return only
}

func fsGroup(pod *v1.Pod) *int64 {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	return pod.Spec.SecurityContext.FSGroup
}
