//! x
use antiphon::audio::{EchoGuard, codec};
use antiphon::units::{Samples, SampleRate};
use antiphon::vad::{Earshot, Vad};
fn load(name:&str)->Option<Vec<i16>>{ let f=std::fs::read(format!("{}/../shared/speech/{name}",env!("CARGO_MANIFEST_DIR"))).ok()?; Some(antiphon::audio::wav::read(&f,SampleRate::HZ_16000,std::time::Duration::from_secs(60)).unwrap().samples)}
#[test]
fn level(){
    let Some(s)=load("librivox/roots_04_morris_0400.wav") else {return};
    for db in [0.,-12.,-24.,-36.,-48.,-60.]{
        let g=10f64.powf(db/20.);
        let mut st=Earshot.open(); let mut n=0;
        for w in s.chunks_exact(256){ let w:Vec<i16>=w.iter().map(|&x|(x as f64*g) as i16).collect(); if st.probability(&w).unwrap()>=0.5{n+=1}}
        println!("{db} dB: {n} of {}", s.len()/256);
    }
}
fn rms(s:&[i16])->f64{(s.iter().map(|&x|(x as f64).powi(2)).sum::<f64>()/s.len() as f64).sqrt()}

fn opus(m:&[i16])->Vec<i16>{ let m24=antiphon::audio::convert(m,SampleRate::HZ_16000,SampleRate::HZ_24000); let mut o=codec::OpusOut::new().unwrap(); let mut i=codec::OpusIn::new().unwrap(); let mut out=vec![]; o.push(&m24,&mut |p|{i.decode(p,&mut out).unwrap();}).unwrap(); out}
fn through(path:&str,mic:Vec<i16>)->Vec<i16>{ let n=mic.len(); let mut mic=mic;
        if path=="ulaw"{ let m8=antiphon::audio::convert(&mic,SampleRate::HZ_16000,SampleRate::HZ_8000); let mut b=vec![]; codec::encode(codec::Format::Ulaw,&m8,&mut b); let mut d=vec![]; codec::decode(codec::Format::Ulaw,&b,&mut d).unwrap(); mic=antiphon::audio::convert(&d,SampleRate::HZ_8000,SampleRate::HZ_16000);}
        if path=="opus"{ mic=opus(&mic);} if path=="opus2"{mic=opus(&opus(&mic));}
        if path=="room"||path=="room+opus"{ let mut seed=7u32; let mut noise=||{seed=seed.wrapping_mul(1664525).wrapping_add(1013904223); ((seed>>8) as f32/(1<<23) as f32-1.0)};
          let mut ir=vec![0f32;3200]; ir[10]=1.0; for i in 11..3200{ ir[i]=noise()*0.12*(-(i as f32)/700.0).exp(); }
          let mut o=vec![0f32;mic.len()]; for (i,&x) in mic.iter().enumerate(){ if x!=0 { let m=(mic.len()-i).min(3200); for k in 0..m { o[i+k]+=x as f32*ir[k]; } } }
          mic=o.iter().map(|&x|x as i16).collect(); if path=="room+opus"{mic=opus(&mic)} }
        mic.truncate(n); mic.resize(n,0); mic}
fn run(reply:&[i16],mic:&[i16])->(usize,usize,usize,f64,Vec<(usize,i32,i32,i32,i32)>,Option<i32>,f64){
        let mut guard=EchoGuard::new(); let mut st=Earshot.open(); let mut raw=Earshot.open();
        if !reply.is_empty(){guard.played(Samples(8000),reply);}
        let (mut n_raw,mut n_res,mut run,mut maxrun,mut e_in,mut e_out)=(0,0,0,0,0.,0.); let mut lag=None; let mut which=vec![]; let mut cost=0.;
        for (i,w) in mic.chunks_exact(256).enumerate(){ let mut out=[0;256]; let t=std::time::Instant::now(); let v=guard.residual(w,&mut out); cost+=t.elapsed().as_secs_f64();
            if raw.probability(w).unwrap()>=0.5{n_raw+=1;}
            let p=st.probability(&out).unwrap();
            if p>=0.5{n_res+=1;run+=1;maxrun=run.max(maxrun);which.push((i,(p*100.) as i32,(v.explained*100.) as i32, rms(w) as i32, rms(&out) as i32))}else{run=0}
            lag=v.lag.or(lag);
            e_in+=rms(w).powi(2); e_out+=rms(&out).powi(2);
        }
        (n_raw,n_res,maxrun,10.*(e_in/e_out).log10(),which,lag,cost/(mic.len() as f64/16000.0))
}
fn names()->Vec<String>{ let mut v:Vec<String>=std::fs::read_dir(format!("{}/../shared/speech/librivox",env!("CARGO_MANIFEST_DIR"))).map(|d|d.filter_map(|e|{let n=e.unwrap().file_name().into_string().unwrap(); n.ends_with("wav").then(||format!("librivox/{n}"))}).collect()).unwrap_or_default(); v.sort(); v.push("jfk.wav".into()); v}
fn mix(reply:&[i16],delay:usize,db:f64)->Vec<i16>{ let mut echo:Vec<i16>=vec![0;8000+delay]; echo.extend(reply); echo.extend(vec![0;8000]); let g=10f64.powf(db/20.); let level=rms(reply); let mut seed=1u32;
  let mut noise=||{seed=seed.wrapping_mul(1664525).wrapping_add(1013904223); ((seed>>8) as f64/(1<<23) as f64-1.0)*1.732};
  echo.iter().map(|&x|(x as f64*g+noise()*level*0.01) as i16).collect() }
#[test]
fn try_out(){
    let names=names();
    for path in ["clean","ulaw","opus","opus2","room","room+opus"] { let (mut raw,mut res,mut runs,mut clips,mut worst,mut erle,mut cost)=(0,0,0,0,0,0.,0.);
      for (k,name) in names.iter().enumerate().step_by(2) { let Some(reply)=load(name) else {return}; let delay=[0,70,250,430,600][k/2%5]*16;
        let (a,b,m,e,which,lag,c)=run(&reply,&through(path,mix(&reply,delay,-12.0))); raw+=a;res+=b;clips+=1;if m>=2{runs+=1; println!("  {name} {} {m} erle {e:.1} lag {:?} {which:?}",delay/16,lag.map(|l|l-delay as i32))} worst=worst.max(m); erle+=e;cost+=c; }
      println!("ECHO {path}: raw {raw} residual {res} clips {clips} with run>=2 {runs} worst run {worst} mean erle {:.1} cost {:.2} ms/s",erle/clips as f64,cost/clips as f64*1e3);
    }
    // user only, and double talk
    for (what,db) in [("user only",-200.0),("double",-12.0),("double",-6.0),("double",0.0)] { let (mut alone,mut res,mut cost,mut n,mut ls)=(0,0,0.,0,0.); let mut worst=1.0f64;
      for k in (0..40).step_by(2) { let (Some(reply),Some(user))=(load(&names[k]),load(&names[(k*7+13)%45])) else {return};
        let mut mic=mix(&reply,250*16,db); let mut only=vec![0i16;mic.len()];
        for (i,&u) in user.iter().enumerate(){ if let Some(m)=mic.get_mut(20000+i){*m=m.saturating_add(u); only[20000+i]=u;} }
        let a=run(&[],&only); let b=run(&reply,&mic); alone+=a.1; 
        // windows of the user that the residual shows
        let set:std::collections::HashSet<usize>=b.4.iter().map(|x|x.0).collect(); let hit=a.4.iter().filter(|x|set.contains(&x.0)).count(); res+=hit; worst=worst.min(hit as f64/a.1.max(1) as f64); cost+=b.6; n+=1; if a.4.len()>0 { let first=a.4[0].0; let f2=a.4.iter().map(|x|x.0).filter(|i|set.contains(i)).next().unwrap_or(999); ls+=(f2-first) as f64; } }
      println!("USER {what} {db}: alone {alone} seen {res} worst clip {worst:.2} mean first late {:.1} windows cost {:.2} ms/s", ls/n as f64, cost/n as f64*1e3);
    }
}
