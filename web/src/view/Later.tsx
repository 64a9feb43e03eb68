// A view whose code is loaded when it is first shown.

import type { ComponentType } from 'preact';
import { useEffect, useState } from 'preact/hooks';

interface Props<P> {
  /** A constant function: its module has the view as its default. */
  load: () => Promise<{ default: ComponentType<P> }>;
  props: P;
  /** The code did not come: the connection is down, or the hub has another build by now. */
  onFault: () => void;
}

export function Later<P extends object>({ load, props, onFault }: Props<P>) {
  const [loaded, setLoaded] = useState<{ View: ComponentType<P> } | null>(null);
  useEffect(() => {
    let isWanted = true;
    load().then(
      ({ default: View }) => isWanted && setLoaded({ View }),
      () => isWanted && onFault(),
    );
    return () => void (isWanted = false);
  }, [load]);
  return loaded && <loaded.View {...props} />;
}
